"""Names that users type, and the objects behind them, imported only when asked for.

A name of the user's own, `package.module:name`, runs that module's code when it is imported. What is called
afterwards is a class of the family that the name stands for, or a function written in Python: nothing else.
"""

import ast
import difflib
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from glasshouse.errors import LONGEST_VALUE, BadInput, named, one_line, quoted

LONGEST_SPEC = 10_000
"""As many characters a name may have, with all its options."""

_imported: dict[str, bool] = {}
"""For each module of the user's, in the order of their import, whether that was said."""


@dataclass(frozen=True)
class Registry:
    """Named objects of one kind, each as `package.module:attribute`; what they make is a `base`.

    A name may carry keyword arguments, written as a call: `pruning(fraction=0.95)`. Where there is a `base`,
    a user's own class that derives from it goes by its place: `my_module:MyAttack(steps=10)`.
    """

    kind: str
    places: Mapping[str, str]
    base: str | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def load(self, name: str) -> Any:
        """The object called `name`; one of the user's own is a class that derives from the base."""
        if name in self.places:
            return import_object(self.places[name])
        if self.base is None or ":" not in name:
            raise BadInput(unknown(self.kind, name, self.places))
        loaded = import_users(name, self.kind)
        if not isinstance(loaded, type) or not issubclass(loaded, import_object(self.base)):
            raise BadInput(f"{self.kind} {quoted(name)} is of another kind; derive a class from {self.base}")
        return loaded

    def check(self, spec: str) -> None:
        """Refuse a name that is neither known nor a user's own, without importing what it stands for."""
        name = parse_spec(spec, self.kind)[0]
        if name not in self.places and ":" not in name:
            raise BadInput(unknown(self.kind, name, self.places))

    def make(self, spec: str) -> Any:
        """Call what `spec` names with the arguments it carries: `make("clipping(norm=2.0)")`."""
        name, arguments = parse_spec(spec, self.kind)
        factory = self.load(name)
        try:
            return factory(**arguments)
        except BadInput:
            raise
        except TypeError as error:
            raise BadInput(
                f"{self.kind} {quoted(spec)}: {one_line(str(error), LONGEST_VALUE * 3)}; "
                "`glasshouse list` shows its options"
            ) from error
        except (Exception, SystemExit) as error:  # whatever a user's own class raises
            raise BadInput(f"{self.kind} {quoted(spec)} raised {named(error)}; repair it") from error


def parse_spec(spec: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Split `name(key=value, ...)` into the name and its literal arguments."""
    check_length(spec, kind)
    name, bracket, rest = spec.strip().partition("(")
    if not bracket:
        return name.strip(), {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes in strings, which are taken as they are
            call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        keys = [word.arg for word in call.keywords]
        if None in keys or len(set(keys)) < len(keys):
            raise ValueError
        return name.strip(), {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        raise BadInput(
            f"{kind} {quoted(spec)} cannot be read; write it as a name or as name(option=value, ...), "
            "each option once"
        ) from None


def write_spec(name: str, options: Mapping[str, Any]) -> str:
    """What `parse_spec` reads as the name with these options.

    >>> write_spec("pgd", {"steps": 10, "norm": "l2"})
    "pgd(steps=10,norm='l2')"
    """
    return f"{name}({','.join(f'{option}={value!r}' for option, value in options.items())})"


def check_length(spec: str, kind: str) -> None:
    """Refuse a name that is longer than any could be, before time goes into reading it."""
    if len(spec) > LONGEST_SPEC:
        raise BadInput(f"{kind} {quoted(spec)} is too long; a name has at most {LONGEST_SPEC} characters")


def import_object(path: str) -> Any:
    """Import `package.module:attribute`."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def import_users(path: str, what: str) -> Any:
    """Import a user's `package.module:attribute`, from the current folder too, with a clear error.

    Python's own modules are refused unseen: importing some of them already acts.
    """
    check_length(path, what)
    module, _, attribute = path.partition(":")
    shown = f"{what} {quoted(path)}"
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise BadInput(f"{shown} cannot be imported; write it as package.module:name")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise BadInput(
            f"{shown} is of Python's standard library, which holds no {what}; name a module of your own, "
            "called otherwise"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        loaded = import_object(path)
    except ImportError as error:
        remedy = "run from the folder that holds it, or install it"
        raise BadInput(f"{shown}: {named(error)}; {remedy}") from error
    except AttributeError as error:
        raise BadInput(f"{shown}: {named(error)}; write it as package.module:name") from error
    except BadInput:  # an integration that names the extra it needs
        raise
    except (Exception, SystemExit) as error:  # whatever the user's own module raises while it is imported
        raise BadInput(f"{shown}: importing it raised {named(error)}; repair it") from error
    finally:
        if module in sys.modules:
            _imported.setdefault(module, False)
    return loaded


def import_function(path: str, what: str) -> Callable[..., Any]:
    """Import a user's function, which is one of Python's: no class, no method, nothing built in."""
    function = import_users(path, what)
    if not inspect.isfunction(function):
        raise BadInput(f"{what} {quoted(path)} is a {type(function).__name__}; name a function")
    return function


def newly_imported() -> list[str]:
    """A line for each module of the user's that was imported since this was last asked, and from where."""
    fresh = [module for module, said in _imported.items() if not said]
    _imported.update(dict.fromkeys(fresh, True))
    return [
        f"imported {module} from {_file(module)}, which ran its code"
        for module in fresh
        if not module.startswith("glasshouse.")
    ]


def _file(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return one_line(str(file), 4 * LONGEST_VALUE) if file else "no file"


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest one that does."""
    known = sorted(known)
    near = difflib.get_close_matches(name[:LONGEST_VALUE], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown {kind} {quoted(name)}; {hint}"

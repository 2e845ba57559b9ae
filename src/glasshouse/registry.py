"""Names that users type, and the objects behind them, imported only when asked for."""

import ast
import difflib
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from glasshouse.errors import BadInput


@dataclass(frozen=True)
class Registry:
    """Named objects of one kind, each as `package.module:attribute`; what they make is a `base`.

    A name may carry keyword arguments, written as a call: `pruning(fraction=0.95)`. A user's own object goes
    by the place it is imported from: `my_module:MyAttack(steps=10)`.
    """

    kind: str
    places: Mapping[str, str]
    base: str | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def load(self, name: str) -> Any:
        """The object called `name`."""
        if ":" in name:
            return import_users(name, self.kind)
        if name not in self.places:
            raise BadInput(unknown(self.kind, name, self.places))
        return import_object(self.places[name])

    def make(self, spec: str) -> Any:
        """Call what `spec` names with the arguments it carries: `make("clipping(norm=2.0)")`."""
        name, arguments = parse_spec(spec, self.kind)
        factory = self.load(name)
        try:
            product = factory(**arguments)
        except BadInput:
            raise
        except TypeError as error:
            raise BadInput(f"{self.kind} {spec!r}: {error}; `glasshouse list` shows its options") from error
        except Exception as error:  # whatever a user's own class raises
            named = f"{type(error).__name__}: {error}"
            raise BadInput(f"{self.kind} {spec!r} raised {named}; repair it") from error
        if self.base and not isinstance(product, import_object(self.base)):
            raise BadInput(f"{self.kind} {spec!r} is of another kind; derive it from {self.base}")
        return product


def parse_spec(spec: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Split `name(key=value, ...)` into the name and its literal arguments."""
    name, bracket, rest = spec.strip().partition("(")
    if not bracket:
        return name.strip(), {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        return name.strip(), {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise BadInput(
            f"{kind} {spec!r} cannot be read; write it as a name or as name(option=value, ...)"
        ) from None


def import_object(path: str) -> Any:
    """Import `package.module:attribute`."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def import_users(path: str, what: str) -> Any:
    """Import a user's `package.module:attribute`, from the current folder too, with a clear error."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return import_object(path)
    except ImportError as error:
        raise BadInput(
            f"{what} {path!r}: {error}; run from the folder that holds it, or install it"
        ) from error
    except AttributeError as error:
        raise BadInput(f"{what} {path!r}: {error}; write it as package.module:name") from error
    except Exception as error:  # whatever the user's own module raises while it is imported
        raise BadInput(
            f"{what} {path!r}: importing it raised {type(error).__name__}: {error}; repair it"
        ) from error


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest one that does."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown {kind} {name!r}; {hint}"

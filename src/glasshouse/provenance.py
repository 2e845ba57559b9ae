"""Which code numbers come from: Glasshouse's, and the user's own that a configuration names."""

import ast
import hashlib
import inspect
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from importlib.machinery import ModuleSpec
from pathlib import Path

from glasshouse.registry import parse_spec
from glasshouse.store import slug

INSTALLED = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def versions() -> dict[str, str]:
    """The versions that decide every number."""
    return {name: metadata.version(name) for name in ("glasshouse", "torch")}


@dataclass(frozen=True)
class Origin:
    """What a run's numbers come from: names, each with a version or a digest.

    The `code` decides every number; of the `parts`, own attacks and defences, each decides what is named
    after it; what was `given` are data and first weights.
    """

    code: Mapping[str, str] = field(default_factory=versions)
    parts: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)


def own_code(specs: Iterable[str]) -> dict[str, str]:
    """Those of the names in `specs` that lead to a user's own code, each with a digest of that code.

    With them go the files that options name, as `policy='mine.toml'` does, each with a digest of its content.
    """
    calls = [parse_spec(spec, "name") for spec in specs]
    code = {name: _digest(name.partition(":")[0]) for name, _ in calls if ":" in name}
    values = [value for _, options in calls for value in options.values() if isinstance(value, str)]
    files = {value: Path(value) for value in values if value.endswith(".toml") and Path(value).is_file()}
    return code | {slug(name): _digest_of({file}) for name, file in files.items()}


def work_name(text: str, specs: Iterable[str]) -> str:
    """`text` as a name for files of what `specs` decide; where these are a user's own, of this code alone."""
    own = own_code(specs)
    code = hashlib.blake2b("".join(own.values()).encode(), digest_size=4).hexdigest()
    return f"{slug(text)}-{code}" if own else slug(text)


def digest_of_types(types: Iterable[type]) -> str:
    """A digest of the code of those `types` that are a user's own; empty where none is."""
    sources = [_source(kind) for kind in sorted(set(types), key=str) if kind.__module__ == "__main__"]
    modules = sorted({kind.__module__ for kind in types} - {"__main__"})
    sources += [_digest(module).encode() for module in modules if _is_own(_find(module))]
    return hashlib.blake2b(b"".join(sources), digest_size=8).hexdigest() if sources else ""


def _source(kind: type) -> bytes:
    """The source of a class or, typed in where none is kept, the bytes that its methods were compiled to."""
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        methods = (getattr(value, "__code__", None) for value in vars(kind).values())
        return b"".join(code.co_code + repr(code.co_consts).encode() for code in methods if code)


def _digest(module: str) -> str:
    """A digest of a module's file and of all others that it leads to and that nobody installed."""
    return _digest_of(_files(module))


def _digest_of(files: set[Path]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _files(module: str) -> set[Path]:
    """The files of a module, of the packages it lies in, and of what it imports, as far as that is own."""
    root = module.partition(".")[0]
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        spec = None if name in found else _find(name)
        if spec is None or not spec.origin or not (_is_own(spec) or name.partition(".")[0] == root):
            continue
        found[name] = Path(spec.origin)
        waiting += [name.rpartition(".")[0]] if "." in name else []
        if spec.origin.endswith(".py"):
            package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
            waiting += _imports(Path(spec.origin), package)
    return set(found.values())


def _find(name: str) -> ModuleSpec | None:
    try:
        return util.find_spec(name)
    except (ImportError, AttributeError, ValueError):  # what does not exist, or is an attribute and no module
        return None


def _is_own(spec: ModuleSpec | None) -> bool:
    """Whether a module is neither Python's nor an installed package's nor Glasshouse's."""
    if spec is None or not spec.has_location or not spec.origin:
        return False
    if spec.name.partition(".")[0] == "glasshouse":
        return False
    return not any(Path(spec.origin).resolve().is_relative_to(folder) for folder in INSTALLED)


def _imports(file: Path, package: str) -> Iterator[str]:
    """The names of all modules that a file may import, wherever in it; some may be attributes of modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)

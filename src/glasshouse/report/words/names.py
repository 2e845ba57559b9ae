"""Short names of defences and attacks."""

from collections.abc import Sequence

from glasshouse.defences import split_defences


def defence_words(spec: str | None) -> str:
    """A short name: `pruning(fraction=0.95)` is "pruning 0.95", `none` is "undefended"."""
    if not spec or spec == "none":
        return "undefended"
    return " + ".join(_one_defence(part) for part in split_defences(spec))


def short_names(attacks: Sequence[str]) -> dict[str, str]:
    """Each attack without its options, where that still tells them apart."""
    bases = [attack.partition("(")[0] for attack in attacks]
    return {full: base if bases.count(base) == 1 else full for full, base in zip(attacks, bases)}


def _one_defence(spec: str) -> str:
    name, _, inside = spec.strip().partition("(")
    options = [option.strip() for option in inside.rstrip(")").split(",") if option.strip()]
    if len(options) == 1:
        options = [options[0].partition("=")[2] or options[0]]
    return " ".join([name.replace("-", " ").strip(), *options])

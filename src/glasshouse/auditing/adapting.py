"""Which inversions of a defended federation run once more, by somebody who knows the defences."""

from collections.abc import Iterable

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.inversion.adaptive import worth_knowing
from glasshouse.attacks.inversion.matching import GradientMatching
from glasshouse.attacks.inversion.strongest import StrongestInversion
from glasshouse.defences import make_defences
from glasshouse.registry import parse_spec, write_spec


def adaptive_forms(specs: Iterable[str], defence: str) -> list[str]:
    """The adaptive forms of those of the attacks that have one, where knowing `defence` helps them.

    >>> adaptive_forms(["gap", "strongest-inversion(seconds=3.0)"], "pruning(fraction=0.9)")
    ['strongest-inversion(seconds=3.0,adaptive=True)']
    >>> adaptive_forms(["strongest-inversion(seconds=3.0)"], "clipping")
    []
    """
    if not worth_knowing(make_defences(defence)):
        return []
    return [form for spec in specs if (form := _adaptive(spec)) is not None]


def _adaptive(spec: str) -> str | None:
    """The attack that knows the defences; null where there is none, or where `spec` is one."""
    attack = ATTACKS.make(spec)
    if not isinstance(attack, GradientMatching | StrongestInversion) or attack.adaptive:
        return None
    name, options = parse_spec(spec, "attack")
    return write_spec(name, {**options, "adaptive": True})

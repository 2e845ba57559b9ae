"""Which attacks on a defended federation run once more, by somebody who knows the defences."""

from collections.abc import Iterable

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack
from glasshouse.attacks.crafted.saturated_head import SaturatedHead, adds_noise
from glasshouse.attacks.inversion.adaptive import worth_knowing
from glasshouse.attacks.inversion.matching import GradientMatching
from glasshouse.attacks.inversion.strongest import StrongestInversion
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.defences import make_defences
from glasshouse.defences.defence import Defence, Stack
from glasshouse.registry import parse_spec, write_spec

UNTRAINED = ("on_receive", "channel")
"""The hooks of a defence that leave the model as it is."""


def adaptive_forms(specs: Iterable[str], defence: str) -> list[str]:
    """The adaptive forms of those of the attacks that have one, where knowing `defence` helps them.

    >>> adaptive_forms(["gap", "strongest-inversion(seconds=3.0)"], "pruning(fraction=0.9)")
    ['strongest-inversion(seconds=3.0,adaptive=True)']
    >>> adaptive_forms(["strongest-inversion(seconds=3.0)", "lira"], "clipping")
    ['lira(adaptive=True)']
    """
    stack = make_defences(defence)
    return [form for spec in specs if (form := _adaptive(spec, stack)) is not None]


def _adaptive(spec: str, stack: Stack) -> str | None:
    """The attack that knows the defences; null where there is none, or where `spec` is one."""
    attack: Attack = ATTACKS.make(spec)
    if isinstance(attack, GradientMatching | StrongestInversion):
        helps = worth_knowing(stack)
    elif isinstance(attack, ShadowAttack):
        helps = changes_training(stack)
    elif isinstance(attack, SaturatedHead):
        helps = adds_noise(stack)
    else:
        return None
    if attack.adaptive or not helps:
        return None
    name, options = parse_spec(spec, "attack")
    return write_spec(name, {**options, "adaptive": True})


def changes_training(stack: Stack) -> bool:
    """Whether models trained under the defences differ from others.

    They do not where the defences only vet what clients receive, or choose the channel.
    """
    hooks = [name for name in vars(Defence) if not name.startswith("_") and name not in UNTRAINED]
    return any(
        getattr(type(defence), hook) is not getattr(Defence, hook)
        for defence in stack.defences
        for hook in hooks
    )

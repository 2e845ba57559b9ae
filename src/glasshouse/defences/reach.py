"""Which defences can act at one place of somebody else's framework, and which cannot."""

from collections.abc import Mapping

from glasshouse.defences import make_defences
from glasshouse.defences.defence import Defence, Stack
from glasshouse.errors import BadInput


def applicable(spec: str | Stack, out_of_reach: Mapping[str, str]) -> Stack:
    """The defences that `spec` names, none of which needs a hook that is `out_of_reach`, by its reason."""
    stack = make_defences(spec) if isinstance(spec, str) else spec
    for defence in stack.defences:
        for hook, reason in out_of_reach.items():
            if getattr(type(defence), hook) is not getattr(Defence, hook):
                raise BadInput(f"{stack}: {type(defence).__name__} {reason}")
    return stack

"""The defences that are compared, by the names that tables give them."""

from collections.abc import Mapping, Sequence

from glasshouse.studies.ats.printed import HYBRID, NONE, RANDOM, RANDOM_POLICY

Arms = Mapping[str, str]
"""Defences by the names of a table."""

IDLE = "28"
"""A policy that changes nothing."""

CROPPED = "crop-and-flip"

PERTURBATIONS: Arms = {
    "pruning-70": "pruning(fraction=0.7)",
    "pruning-95": "pruning(fraction=0.95)",
    "pruning-99": "pruning(fraction=0.99)",
    "laplacian-0.001": "laplacian-noise(scale=0.001)",
    "laplacian-0.01": "laplacian-noise(scale=0.01)",
    "gaussian-0.001": "gaussian-noise(std=0.001)",
    "gaussian-0.01": "gaussian-noise(std=0.01)",
}
"""Table 6: other defences, on every gradient of the training and on the attacked one."""

COMBINED = "pruning-99"
"""The one of them that is also combined with policies."""


def policy_of(policy: str, *, cropped: bool = False) -> str:
    """The defence that a policy is."""
    return f"transformation-policy(policy='{policy}'{',crop_and_flip=True' if cropped else ''})"


def arms_of(policies: Sequence[str], *, random: bool = False) -> dict[str, str]:
    """No policy, maybe the papers' random one, each of some policies, and the hybrid of all."""
    drawn = {RANDOM: policy_of(RANDOM_POLICY)} if random else {}
    each = {policy: policy_of(policy) for policy in policies}
    return {NONE: "none", **drawn, **each, HYBRID: policy_of("+".join(policies))}


def combined(policies: Sequence[str]) -> dict[str, str]:
    """The hybrid of some policies, and pruning of what its images give."""
    return {f"{HYBRID}-{COMBINED}": f"{policy_of('+'.join(policies))}+{PERTURBATIONS[COMBINED]}"}


def crops_of(policies: Sequence[str]) -> dict[str, str]:
    """The crop and flip that the papers' code adds to policies, alone and with the hybrid."""
    hybrid = policy_of("+".join(policies), cropped=True)
    return {CROPPED: policy_of(IDLE, cropped=True), f"{HYBRID}-{CROPPED}": hybrid}

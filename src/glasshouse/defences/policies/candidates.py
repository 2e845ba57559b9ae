"""Policies to choose from, each once: some of the fifty transformations are the same, and some do nothing."""

from collections.abc import Iterable

import torch

from glasshouse.defences.policies.policy import Policy, random_policy
from glasshouse.defences.policies.transformations import LIBRARY, RANGES, Transformation
from glasshouse.models.shapes import Shape

Effect = tuple[str, float]
"""An operation and its magnitude."""


def draw_policies(count: int, shape: Shape, rng: torch.Generator) -> list[Policy]:
    """`count` policies of three transformations, drawn at random; of those with the same effect the first."""
    return distinct((random_policy(rng) for _ in range(count)), shape)


def distinct(policies: Iterable[Policy], shape: Shape) -> list[Policy]:
    """The policies without those that do to images of `shape` what one before them does."""
    first: dict[object, Policy] = {}
    for policy in policies:
        first.setdefault(effects(policy, shape), policy)
    return list(first.values())


def effects(policy: Policy, shape: Shape) -> tuple[tuple[Effect, ...], ...]:
    """What each choice of the policy does, in its order, without what does nothing."""
    return tuple(
        tuple(_effect(LIBRARY[index]) for index in choice if LIBRARY[index].changes(shape))
        for choice in policy.choices
    )


def _effect(transformation: Transformation) -> Effect:
    operation = transformation.operation
    return operation, float(transformation.magnitude) if operation in RANGES else 0.0

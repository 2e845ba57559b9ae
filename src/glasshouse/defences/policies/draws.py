"""What a policy may do to one image: a case for each of its choices and the signs of its transformations.

Whoever knows the policy knows these cases, and not which of them an image met.
"""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from glasshouse.defences.policies.policy import Policy
from glasshouse.defences.policies.relaxed import RELAXED, WHITE
from glasshouse.defences.policies.transformations import ENHANCEMENTS, LIBRARY, RANGES, Transformation
from glasshouse.models.shapes import Shape


@dataclass(frozen=True)
class Draw:
    """Operations in their order, each with its parameter: one way in which a policy transforms an image."""

    steps: tuple[tuple[str, float], ...]

    def apply(self, x: Tensor) -> Tensor:
        """Transformed images in [0, 1], shape (..., C, H, W), with slopes and without rounding."""
        if not self.steps:
            return x
        levels = WHITE * x.flatten(0, -4)
        for operation, parameter in self.steps:
            parameters = torch.full((len(levels),), parameter, dtype=torch.float64)
            levels = RELAXED[operation](levels, parameters)
        return (levels / WHITE).reshape(x.shape)

    def __str__(self) -> str:
        return ", ".join(_said(*step) for step in self.steps) or "nothing"


UNCHANGED = Draw(())
"""What happens where there is no policy."""


@dataclass(frozen=True, eq=False)
class AnyDraw:
    """One of some `draws` for each image, drawn anew every time: what is expected of all of them."""

    draws: tuple[Draw, ...]
    rng: torch.Generator

    def apply(self, x: Tensor) -> Tensor:
        """Transformed images in [0, 1], shape (..., C, H, W), with slopes and without rounding."""
        images = x.flatten(0, -4)
        places = torch.randint(len(self.draws), (len(images),), generator=self.rng).tolist()
        parts = [self.draws[place].apply(image[None]) for place, image in zip(places, images)]
        return torch.cat(parts).reshape(x.shape)


def possible_draws(policy: Policy, shape: Shape) -> dict[Draw, float]:
    """Every case that an image of `shape` may meet, with its probability; equal ones are one.

    >>> from glasshouse.defences.policies.policy import parse_policy
    >>> [str(draw) for draw in possible_draws(parse_policy("3-39"), (3, 32, 32))]
    ['translateX -0.45', 'translateX +0.45']
    """
    draws: dict[Draw, float] = {}
    for indices in policy.choices:
        effective = [LIBRARY[index] for index in indices if LIBRARY[index].changes(shape)]
        cases = list(product(*map(_steps, effective)))
        for steps in cases:
            draws[Draw(steps)] = draws.get(Draw(steps), 0.0) + 1 / (len(cases) * len(policy.choices))
    return draws


def _steps(transformation: Transformation) -> list[tuple[str, float]]:
    """The operation with each parameter that it may get."""
    return [(transformation.operation, parameter) for parameter in transformation.parameters]


def _said(operation: str, parameter: float) -> str:
    """An operation with its parameter in words; those whose strength does not vary have none.

    >>> _said("contrast", 1.5), _said("shearX", -0.1), _said("invert", 0.0)
    ('contrast 1.5', 'shearX -0.1', 'invert')
    """
    if operation not in RANGES:
        return operation
    return f"{operation} {parameter:{'.2g' if operation in ENHANCEMENTS else '+.2g'}}"

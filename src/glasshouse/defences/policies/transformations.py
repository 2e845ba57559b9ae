"""The fifty transformations that policies are made of (Gao et al. 2021): an operation and a level each.

Only 29 of them differ, as some are in the list twice and some operations have no strength; 28 and 39 change
nothing.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.defences.policies.operations import OPERATIONS
from glasshouse.models.shapes import Shape

LEVELS = 10
"""Strengths of each operation, from none to its strongest."""

RANGES: dict[str, tuple[float, float]] = {
    "shearX": (0, 0.3),
    "shearY": (0, 0.3),
    "translateX": (0, 150 / 331),
    "translateY": (0, 150 / 331),
    "rotate": (0, 30),
    "color": (0, 0.5),
    "contrast": (0, 0.5),
    "sharpness": (0, 0.5),
    "brightness": (0, 0.5),
    "posterize": (8, 4),
    "solarize": (256, 0),
}
"""From the first to the last level: a slope, a share of the side, degrees, what a factor has beyond 1, bits,
a threshold. The other operations have no strength."""

ENHANCEMENTS = ("color", "contrast", "sharpness", "brightness")
NEUTRAL = {"posterize": 8, "solarize": 256}
"""The magnitude at which an operation changes nothing, where that is not 0."""

FLATTENED = 256
"""Pixels of a channel from which on `equalize` can make its histogram flat."""

MOVING = ("shearX", "shearY", "translateX", "translateY", "rotate")
"""Operations that move pixels, and fill in where none comes to lie."""

SIGNED = ("shearX", "shearY", "translateX", "translateY", *ENHANCEMENTS)
"""Operations that go either way, each with probability 1/2 for each image."""


@dataclass(frozen=True)
class Transformation:
    """An operation at one of its levels."""

    operation: str
    level: int

    @property
    def magnitude(self) -> float:
        """The level on the operation's own scale."""
        first, last = RANGES.get(self.operation, (0, 0))
        magnitude = float(np.linspace(first, last, LEVELS)[self.level])
        return round(magnitude) if self.operation == "posterize" else magnitude

    @property
    def parameters(self) -> tuple[float, ...]:
        """What the operation may be told for an image, with equal chances: one, or one of each sign."""
        signs = (-1, 1) if self.operation in SIGNED else (1,)
        return tuple(sign * self.magnitude + (self.operation in ENHANCEMENTS) for sign in signs)

    def changes(self, shape: Shape) -> bool:
        """Whether it does anything to images of `shape` (channels, height, width)."""
        channels, height, width = shape
        if self.operation == "color" and channels != 3:
            return False
        if self.operation == "equalize" and height * width < FLATTENED:
            return False
        return self.operation not in RANGES or self.magnitude != NEUTRAL.get(self.operation, 0)

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """What the operation is told for each of `count` images, shape (count,)."""
        parameters = torch.tensor(self.parameters, dtype=torch.float64)
        if len(parameters) == 1:
            return parameters.expand(count)
        return parameters[torch.randint(0, len(parameters), (count,), generator=rng)]

    def apply(self, levels: Tensor, rng: torch.Generator) -> Tensor:
        """Transformed images, uint8 (B, C, H, W), each with a sign of its own where the operation has one."""
        return OPERATIONS[self.operation](levels, self.draw(len(levels), rng))

    def __str__(self) -> str:
        return f"{self.operation}-{self.level}"


LIBRARY = tuple(
    Transformation(operation, level)
    for operation, level in (
        ("invert", 7), ("contrast", 6), ("rotate", 2), ("translateX", 9), ("sharpness", 1),  # 0
        ("sharpness", 3), ("shearY", 2), ("translateY", 2), ("autocontrast", 5), ("equalize", 2),  # 5
        ("shearY", 5), ("posterize", 5), ("color", 3), ("brightness", 5), ("sharpness", 9),  # 10
        ("brightness", 9), ("equalize", 5), ("equalize", 1), ("contrast", 7), ("sharpness", 5),  # 15
        ("color", 5), ("translateX", 5), ("equalize", 7), ("autocontrast", 8), ("translateY", 3),  # 20
        ("sharpness", 6), ("brightness", 6), ("color", 8), ("solarize", 0), ("invert", 0),  # 25
        ("equalize", 0), ("autocontrast", 0), ("equalize", 8), ("equalize", 4), ("color", 5),  # 30
        ("equalize", 5), ("autocontrast", 4), ("solarize", 4), ("brightness", 3), ("color", 0),  # 35
        ("solarize", 1), ("autocontrast", 0), ("translateY", 3), ("translateY", 3), ("autocontrast", 1),  # 40
        ("solarize", 1), ("equalize", 5), ("invert", 0), ("translateY", 3), ("autocontrast", 1),  # 45
    )
)  # fmt: skip
"""By their indices, 0 to 49; the comments give the first index of each line."""

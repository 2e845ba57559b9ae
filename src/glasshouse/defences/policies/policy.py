"""Transformation policies (Gao et al. 2021): a few transformations in a row, for every training image."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.defences.policies.transformations import LIBRARY, MOVING
from glasshouse.errors import BadInput, quoted
from glasshouse.learning.cpu import channels_last

MOST = 3
"""Transformations in one policy: there are 50 + 50^2 + 50^3 = 127,550 of them."""

GRAMMAR = (
    f"write one to {MOST} indices from 0 to {len(LIBRARY) - 1} with hyphens between them, as 3-1-7, and a "
    "plus sign between the policies of a hybrid, as 3-1-7+43-18-18"
)


@dataclass(frozen=True)
class Policy:
    """Indices of transformations in their order; of several such `choices` each image gets one at random."""

    choices: tuple[tuple[int, ...], ...]

    def apply(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Transform images `x`, shape (B, C, H, W), each by a choice and signs of its own.

        Images are first rounded to 8 bits and stay so: the results are multiples of 1/255 in [0, 1], in the
        memory order that convolutions like.
        """
        return self._transform(x, rng, moving=False)

    def move(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Do only what moves pixels, with the draws that `apply` would make: where would each come to lie?"""
        return self._transform(x, rng, moving=True)

    def _transform(self, x: Tensor, rng: torch.Generator, *, moving: bool) -> Tensor:
        levels = (255 * x).round_().clamp_(0, 255).to(torch.uint8).contiguous()
        if len(self.choices) == 1:
            levels = _in_turn(self.choices[0], levels, rng, moving)
        else:
            chosen = torch.randint(len(self.choices), (len(x),), generator=rng)
            for number, indices in enumerate(self.choices):
                rows = (chosen == number).nonzero()[:, 0]
                levels[rows] = _in_turn(indices, levels[rows], rng, moving)
        return channels_last(levels).to(x.dtype).div_(255)

    def __str__(self) -> str:
        return "+".join("-".join(map(str, indices)) for indices in self.choices)


def parse_policy(text: object) -> Policy:
    """The policy written as `3-1-7`, or the hybrid of several as `3-1-7+43-18-18`.

    >>> parse_policy("3-1-7+43-18-18").choices
    ((3, 1, 7), (43, 18, 18))
    """
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]+(-[0-9]+)*(\+[0-9]+(-[0-9]+)*)*", text):
        raise BadInput(f"transformation policy {quoted(text)} cannot be read; {GRAMMAR}")
    choices = [choice.split("-") for choice in text.split("+")]
    for choice in choices:
        if len(choice) > MOST:
            raise BadInput(f"transformation policy {quoted(text)} has {len(choice)} in a row; {GRAMMAR}")
        for index in choice:
            if len(index) > 2 or int(index) >= len(LIBRARY):
                raise BadInput(
                    f"{quoted(index)} in transformation policy {quoted(text)} names none; {GRAMMAR}"
                )
    return Policy(tuple(tuple(map(int, choice)) for choice in choices))


def random_policy(rng: torch.Generator, length: int = MOST) -> Policy:
    """A policy of `length` transformations, each drawn uniformly from the library."""
    return Policy((tuple(torch.randint(len(LIBRARY), (length,), generator=rng).tolist()),))


def _in_turn(indices: tuple[int, ...], levels: Tensor, rng: torch.Generator, moving: bool) -> Tensor:
    """All of some transformations, or only those that move pixels; either way all of them draw."""
    for transformation in (LIBRARY[index] for index in indices):
        if moving and transformation.operation not in MOVING:
            transformation.draw(len(levels), rng)
        else:
            levels = transformation.apply(levels, rng)
    return levels

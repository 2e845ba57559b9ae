"""What all evasion attacks do around their own idea: freeze the model, try each limit, try again."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.frozen import Frozen, fooled
from glasshouse.attacks.evasion.limits import Assault, Limit, at_each, limits
from glasshouse.attacks.evasion.losses import cross_entropy
from glasshouse.attacks.evasion.masking import at_first_sight, stalled
from glasshouse.data.images import Images
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball, Norm, inside
from glasshouse.learning.seeds import torch_rng


class Evasion(Protocol):
    """An attack with limits that can be tried on some images after others."""

    @property
    def eps(self) -> Limit:
        """How far it may go."""

    @property
    def norm(self) -> Norm:
        """How that is measured."""

    def assault(self, frozen: Frozen, images: Images, seed: int) -> Assault:
        """The attack on some of `images`; its random numbers follow from `seed` and an image's position."""


def attempt(
    attack: Evasion, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator
) -> AdversarialExamples:
    """The attack's examples at all its limits, with those signs of hidden gradients that cost little.

    An image that is wrong without an attack stays as it is.
    """
    assert knowledge.candidates is not None
    images, frozen = knowledge.candidates, Frozen(access.model)
    sizes = limits(attack.eps, images)
    logits, _, slope = frozen.look(images.x, images.y, cross_entropy)
    wrong = fooled(logits, images.y)
    x, fell = at_each(sizes, attack.norm, images, wrong, attack.assault(frozen, images, draw_seed(rng)))
    signs = at_first_sight(frozen, images.x, logits, slope, ~wrong) + stalled(sizes, fell[:, ~wrong])
    return AdversarialExamples(x, sizes, attack.norm, tuple(signs))


def draw_seed(rng: torch.Generator) -> int:
    """A seed for one run of an attack."""
    return int(torch.randint(2**62, (), generator=rng))


def starts(ball: Ball, everyone: torch.Size, positions: Tensor, seed: int, restart: int) -> Tensor:
    """A random image in `ball` for each of those at `positions`; the same share of every limit."""
    return ball.at(inside(everyone, ball.norm, torch_rng(seed, "start", restart))[positions])


def in_turn(
    rounds: int, ball: Ball, y: Tensor, go: Callable[[int, Ball, Tensor, Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Go up to `rounds` times, each time with those images that are not fooled yet.

    `go(number, ball, y, which)` returns examples of the images `which` and whether they fool the model.
    """
    x, fell = ball.centre.clone(), torch.zeros(len(ball), dtype=torch.bool)
    for number in range(rounds):
        alive = (~fell).nonzero().flatten()
        if not len(alive):
            break
        x[alive], fell[alive] = go(number, ball[alive], y[alive], alive)
    return x, fell

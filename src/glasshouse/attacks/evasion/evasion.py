"""What all evasion attacks share: limits, a first look at every image, and the loop along a path."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import ClassVar, get_args

import torch
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.evasion.frozen import Frozen, Sight, cross_entropy, fooled, wrong_classes
from glasshouse.attacks.evasion.masking import at_first_sight, stalled
from glasshouse.data.images import Images
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.learning.ball import Ball, Norm, inside
from glasshouse.learning.seeds import torch_rng
from glasshouse.options import check_choice, check_number, check_whole

COUNTS = ("steps", "queries", "restarts", "targets")
"""Options that must be whole numbers from 1, or null where that is their default."""

Limit = float | tuple[float, ...] | None
"""One limit, several in any order, or null for the batch-robustness paper's."""

GREY, COLOUR = 0.3, 0.02
"""The batch-robustness paper's limits for grey and for colour images."""

Attempt = tuple[Tensor, Tensor]
"""An example of each of N images, shape (N, C, H, W), and whether it fools the model, bool of shape (N,)."""


@dataclass(frozen=True, eq=False)
class Originals:
    """Images to perturb: the ball around them, their labels, and their positions among all candidates."""

    ball: Ball
    y: Tensor
    positions: Tensor

    def __getitem__(self, which: Tensor) -> "Originals":
        """Some of the images, by an index array or a mask."""
        return Originals(self.ball[which], self.y[which], self.positions[which])


Try = Callable[[Originals], Attempt]
"""Tries to perturb images, none of which fools the model yet, within the ball around them."""


@dataclass(frozen=True, eq=False)
class Problem:
    """The model and all candidates of one run, with what the model says about them unperturbed.

    Random numbers follow from `seed` and an image's position, so they do not depend on which other images are
    still tried, nor on the limit.
    """

    model: Frozen
    images: Images
    clean: Sight
    seed: int

    @classmethod
    def of(cls, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> "Problem":
        """What an attack with that access and knowledge has to solve."""
        assert knowledge.candidates is not None
        images, model = knowledge.candidates, Frozen(access.model)
        clean = model.look(images.x, images.y, cross_entropy)
        return cls(model, images, clean, int(torch.randint(2**62, (), generator=rng)))

    @cached_property
    def wrong(self) -> Tensor:
        """Which images the model gets wrong without an attack, bool of shape (N,)."""
        return fooled(self.clean.logits, self.images.y)

    def within(self, eps: float, norm: Norm, positions: Tensor) -> Originals:
        """The images at `positions`, to be perturbed within `eps`."""
        return Originals(Ball(self.images.x[positions], eps, norm), self.images.y[positions], positions)

    def pairs(self, originals: Originals, rank: int) -> Tensor:
        """The right class of each image and its wrong one of that likelihood, 0 for the likeliest: (N, 2)."""
        wanted = wrong_classes(self.clean.logits[originals.positions], originals.y)[:, rank]
        return torch.stack([originals.y, wanted], 1)

    def random_start(self, originals: Originals, restart: int) -> Tensor:
        """A random image in the ball around each original."""
        rng = torch_rng(self.seed, "start", restart)
        return originals.ball.at(inside(self.images.x.shape, originals.ball.norm, rng)[originals.positions])


class Path:
    """Images on their way: `x`, shape (N, C, H, W), is what the model is shown next.

    It is shown before, between and after at most `steps` steps. This path stays at its start.
    """

    def __init__(self, originals: Originals, x: Tensor, steps: int = 0) -> None:
        self.originals, self.x, self.steps = originals, x, steps

    def look(self, model: Frozen, number: int) -> Tensor:
        """The logits for `x` after `number` steps, shape (N, classes)."""
        return model.answers(self.x)

    def falls(self, logits: Tensor) -> Tensor:
        """Which images are done, as the model answers `x` with `logits`: bool of shape (N,)."""
        return fooled(logits, self.originals.y)

    def step(self, number: int) -> None:
        """Move `x` by the step that follows look `number`; may write into it."""

    def keep(self, which: Tensor) -> None:
        """Go on with some of the images."""
        self.originals, self.x = self.originals[which], self.x[which]

    @property
    def best(self) -> Tensor:
        """The examples of the images that do not fool the model in the end."""
        return self.x


def follow(path: Path, model: Frozen) -> Attempt:
    """The end of `path`; an image that fools the model, at the start or on the way, takes no further step."""
    examples, fell = path.x.clone(), torch.zeros(len(path.x), dtype=torch.bool)
    alive = torch.arange(len(path.x))
    for number in range(path.steps + 1):
        wrong = path.falls(path.look(model, number))
        if wrong.any():
            examples[alive[wrong]], fell[alive[wrong]] = path.x[wrong], True
            alive = alive[~wrong]
            path.keep(~wrong)
        if not len(alive):
            return examples, fell
        if number < path.steps:
            path.step(number)
    examples[alive] = path.best
    return examples, fell


def in_turn(attempts: Iterable[Try], originals: Originals) -> Attempt:
    """Make one attempt after the other, each with the images that do not fool the model yet."""
    x, fell = originals.ball.centre.clone(), torch.zeros(len(originals.y), dtype=torch.bool)
    for attempt in attempts:
        alive = (~fell).nonzero().flatten()
        if not len(alive):
            break
        x[alive], fell[alive] = attempt(originals[alive])
    return x, fell


def limits(eps: Limit, images: Images) -> tuple[float, ...]:
    """The limits asked for, ascending and each once."""
    if eps is None:
        return (GREY if is_grey(images) else COLOUR,)
    return tuple(sorted({float(one) for one in (eps if isinstance(eps, Sequence) else (eps,))}))


def is_grey(images: Images) -> bool:
    """Whether images have one channel."""
    return images.shape[0] == 1


@dataclass(frozen=True, kw_only=True)
class Evasion(Attack):
    """An attack within limits; a member says how a `path` starts and moves, and how often it `tries`."""

    name: ClassVar[str]
    eps: Limit = None
    norm: Norm = field(default="linf", init=False)
    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def __post_init__(self) -> None:
        check_choice(self.name, "norm", self.norm, get_args(Norm))
        if self.eps is not None:
            for eps in self.eps if isinstance(self.eps, tuple | list) and self.eps else (self.eps,):
                check_number(self.name, "eps", eps, 0, 1 if self.norm == "linf" else math.inf)
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in COUNTS and not (value is option.default is None):
                check_whole(self.name, option.name, value, 1)
            if option.name == "step" and value is not None:
                check_number(self.name, "step", value, 0, open_low=True)

    def run(self, access: ModelAccess, knowledge: Knowledge, rng: torch.Generator) -> AdversarialExamples:
        problem = Problem.of(access, knowledge, rng)
        return self.solve(problem, limits(self.eps, problem.images))

    def solve(self, problem: Problem, sizes: tuple[float, ...]) -> AdversarialExamples:
        """Examples for each of the ascending limits `sizes`.

        An image that fools the model within one limit keeps that example for all larger ones and is not tried
        again; one that is wrong without an attack stays as it is. So no larger limit leaves more accuracy.
        """
        attempt = self.solver(problem)
        x, fallen = problem.images.x.clone(), problem.wrong.clone()
        examples, fell = [], []
        for eps in sizes:
            alive = (~fallen).nonzero().flatten()
            if eps > 0 and len(alive):
                x[alive], fallen[alive] = attempt(problem.within(eps, self.norm, alive))
            examples.append(x.clone())
            fell.append(fallen[~problem.wrong])
        signs = self.signs(problem, sizes, torch.stack(fell))
        return AdversarialExamples(
            torch.stack(examples), sizes, self.norm, tuple(signs), notes=self.notes(problem.images)
        )

    def solver(self, problem: Problem) -> Try:
        """What tries to perturb images within one limit after the other, each no smaller than the last."""
        return partial(self.attempt, problem)

    def notes(self, images: Images) -> tuple[str, ...]:
        """Where it cannot run as published on such images, and what runs instead."""
        return ()

    def signs(self, problem: Problem, sizes: tuple[float, ...], fell: Tensor) -> list[str]:
        """Signs of hidden gradients that cost little; `fell`, shape (E, N), says which right images fell."""
        first = at_first_sight(problem.model, problem.images.x, problem.clean, ~problem.wrong)
        return first + stalled(sizes, fell)

    def attempt(self, problem: Problem, originals: Originals) -> Attempt:
        """Try to perturb `originals`, none of which fools the model, within their ball."""
        tries = range(self.tries(problem.images))
        return in_turn([partial(self._follow, problem, number) for number in tries], originals)

    def tries(self, images: Images) -> int:
        """How many paths an image may take."""
        return 1

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        """The path of try `number`, from 0, for images that the tries before left right."""
        return Path(originals, originals.ball.centre)

    def _follow(self, problem: Problem, number: int, originals: Originals) -> Attempt:
        return follow(self.path(problem, originals, number), problem.model)

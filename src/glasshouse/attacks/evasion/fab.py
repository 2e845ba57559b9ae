"""FAB (Croce and Hein 2020): walks along the boundary with a wrong class to its point nearest the image."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from glasshouse.attacks.evasion.evasion import (
    Attempt,
    Evasion,
    Originals,
    Path,
    Problem,
    Try,
    follow,
    in_turn,
)
from glasshouse.attacks.evasion.frozen import CHUNK, Frozen, fooled, margin, targeted_lead
from glasshouse.data.images import Images
from glasshouse.learning.ball import TINY, Norm

OVERSHOOT = 1.05
"""How far a step goes, in units of the way to the plane that stands for the boundary (eta)."""
PULL = 0.1
"""The largest share of a step that begins at the original instead (alpha_max)."""
BACK = 0.9
"""What is left of the way from the original once an example fools the model (beta)."""


@dataclass(frozen=True, kw_only=True)
class FABT(Evasion):
    """Looks for the nearest example in each of the `targets` likeliest wrong classes, whatever the limit.

    Each step goes to the plane that the model's boundary with that class would be if it were linear. As the
    limit decides only whether the nearest example counts, several limits cost as much as the smallest.
    """

    name = "fab-t"
    norm: Norm = "linf"
    steps: int = 100
    targets: int = 9

    def tries(self, images: Images) -> int:
        return min(self.targets, images.classes - 1)

    def path(self, problem: Problem, originals: Originals, number: int) -> Path:
        return BoundaryWalk(originals, problem.pairs(originals, number), self.steps)

    def solver(self, problem: Problem) -> Try:
        return Nearest(problem, self)

    def attempt(self, problem: Problem, originals: Originals) -> Attempt:
        return self.solver(problem)(originals)


class Nearest:
    """The nearest example known of each candidate; none is looked for twice, as limits grow."""

    def __init__(self, problem: Problem, attack: FABT) -> None:
        self._problem, self._attack = problem, attack
        self._x = problem.images.x.clone()
        self._distances = torch.full((len(self._x),), torch.inf)
        self._walked = torch.zeros(len(self._x), dtype=torch.bool)

    def __call__(self, originals: Originals) -> Attempt:
        """The nearest examples, where they lie within the ball, else the originals."""
        targets = range(self._attack.tries(self._problem.images))
        unknown = originals[~self._walked[originals.positions]]
        in_turn([partial(self._walk, target) for target in targets], unknown)
        self._walked[unknown.positions] = True
        within = self._distances[originals.positions] <= originals.ball.eps
        x = originals.ball.centre.clone()
        x[within] = self._x[originals.positions[within]]
        return x, within

    def _walk(self, target: int, originals: Originals) -> Attempt:
        """Walk towards one class, and remember what is nearer than before."""
        x, fell = follow(self._attack.path(self._problem, originals, target), self._problem.model)
        distances = originals.ball.distances(x)
        # A walk that fools nobody ends where it began: at the original, which is right.
        nearer = (distances > 0) & (distances < self._distances[originals.positions])
        self._x[originals.positions[nearer]] = x[nearer]
        self._distances[originals.positions[nearer]] = distances[nearer]
        return x, fell


class BoundaryWalk(Path):
    """Steps to the boundary between the classes of `pairs`, (right, wanted), and back from beyond it.

    It may lead outside the ball; the nearest example that fools the model, if any, is what remains.
    """

    def __init__(self, originals: Originals, pairs: Tensor, steps: int) -> None:
        centre = originals.ball.centre
        super().__init__(originals, centre, steps)
        self._pairs, self._nearest = pairs, centre.clone()
        self._distance = torch.full((len(centre),), torch.inf)
        self._base, self._lead, self._slope = centre, pairs, centre

    def look(self, model: Frozen, number: int) -> Tensor:
        """Also finds where the next step begins, and the slope there."""
        logits = model.answers(self.x)
        self._remember(fooled(logits, self.originals.y))
        # Also from where only rounding decides, else steps to the boundary would get ever shorter.
        beyond = margin(logits, self.originals.y) >= 0
        self._base = torch.where(beyond[:, None, None, None], self._back(), self.x)
        if number < self.steps:
            _, self._lead, self._slope = model.look(self._base, self._pairs, targeted_lead)
        return logits

    def falls(self, logits: Tensor) -> Tensor:
        return super().falls(logits) & (self.originals.ball.distances(self.x) <= self.originals.ball.eps)

    def step(self, number: int) -> None:
        ball = self.originals.ball
        parts = (part.split(CHUNK) for part in (self._base, ball.centre, self._slope, self._lead))
        self.x = torch.cat([_step(ball.norm, *part) for part in zip(*parts)])

    def keep(self, which: Tensor) -> None:
        super().keep(which)
        self._pairs, self._base = self._pairs[which], self._base[which]
        self._lead, self._slope = self._lead[which], self._slope[which]
        self._nearest, self._distance = self._nearest[which], self._distance[which]

    @property
    def best(self) -> Tensor:
        return self._nearest

    def _remember(self, wrong: Tensor) -> None:
        """Keep the examples that fool the model, where they are the nearest yet."""
        distances = self.originals.ball.distances(self.x)
        nearer = wrong & (distances < self._distance)
        self._nearest[nearer], self._distance[nearer] = self.x[nearer], distances[nearer]

    def _back(self) -> Tensor:
        """Between the originals and here."""
        centre = self.originals.ball.centre
        return centre + BACK * (self.x - centre)


def _step(norm: Norm, base: Tensor, original: Tensor, slope: Tensor, lead: Tensor) -> Tensor:
    """A little beyond the plane where the lead would be 0, from `base`, and to a share from the original."""
    at_original = lead + ((original - base) * slope).flatten(1).sum(1)
    here = way_to_plane(base, slope, -lead, norm)
    there = way_to_plane(original, slope, -at_original, norm)
    short, long = (_lengths(way, norm) for way in (here, there))
    share = (short / (short + long)).clamp_max(PULL)
    ahead = (1 - share) * (base + OVERSHOOT * here) + share * (original + OVERSHOOT * there)
    return ahead.clamp_(0, 1)


def way_to_plane(x: Tensor, slope: Tensor, gain: Tensor, norm: Norm) -> Tensor:
    """The shortest way d from each of the images `x` with d . slope = gain, such that x + d is in [0, 1].

    Along it a pixel moves by s r min(t, m / r): s is the sign of gain times slope, m its room up to 0 or 1,
    and r its speed, 1 in "linf" and |slope| in "l2". The t that yields `gain`, shape (N,), is found among the
    m / r in order, between which the gain is linear in t. Where the plane lies beyond all images, every pixel
    moves as far as it can.
    """
    steep, gain = slope.flatten(1).double(), gain.double()
    pixels = x.flatten(1).double()
    sign = steep.sign() * gain.sign()[:, None]
    steep = steep.abs()
    room = torch.where(sign > 0, 1 - pixels, pixels)
    speed = torch.ones_like(steep) if norm == "linf" else steep
    stops, order = (room / speed.clamp_min(TINY)).sort(1)
    rates = (steep * speed).gather(1, order)
    stopped = (rates * stops).cumsum(1)
    moving = rates.flip(1).cumsum(1).flip(1)
    reached = stopped + stops * (moving - rates)  # by the time that each pixel stops
    after = (reached < gain.abs()[:, None]).sum(1, keepdim=True)
    last = after.clamp_max(stops.shape[1] - 1)
    before = (stopped - rates * stops).gather(1, last)
    time = (gain.abs()[:, None] - before) / moving.gather(1, last).clamp_min(TINY)
    time = torch.where(after == stops.shape[1], torch.inf, time)
    way = sign * torch.minimum(speed * time, room).nan_to_num(0)
    return way.to(x.dtype).view_as(x)


def _lengths(way: Tensor, norm: Norm) -> Tensor:
    """How long each way is, shape (N, 1, 1, 1), and never 0."""
    order = torch.inf if norm == "linf" else 2
    sizes: Tensor = torch.linalg.vector_norm(way, order, dim=(1, 2, 3), keepdim=True)
    return sizes.clamp_min(1e-8)

"""Images by matching gradients: one loop with small steps, which each published attack sets in its own way.

The objective is  distance(gradient of the images, gradient seen) + penalties on what no image looks like.
Its derivative by the pixels comes from a second backward pass: a finite difference of input gradients costs
as much and, through ReLUs, has the right sign for hardly more than half of the pixels.
"""

import math
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from glasshouse.access import Protocol
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.inversion.adaptive import Adapted, adapt
from glasshouse.attacks.inversion.descent import OPTIMISERS, SCHEDULES, Descent, Pace
from glasshouse.attacks.inversion.distances import DISTANCES, WEIGHTINGS, layer_weights
from glasshouse.attacks.inversion.inversion import UpdateInversion, joined
from glasshouse.attacks.inversion.label_guesses import SOURCES, check_source, guessed_labels
from glasshouse.attacks.inversion.priors import (
    StatisticsPrior,
    energy,
    passing_statistics,
    statistics_distance,
    total_variation,
    watching_statistics,
)
from glasshouse.attacks.inversion.registration import consensus
from glasshouse.attacks.inversion.solutions import Solution, solution_of
from glasshouse.attacks.inversion.target import Matcher, Target
from glasshouse.attacks.inversion.targets import make_target, sent_statistics, statistics_in_update
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.defences.policies.draws import UNCHANGED, AnyDraw, Draw
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt
from glasshouse.options import check_choice, check_flag, check_number, check_whole

STATISTICS = ("running", "update", "auxiliary")
"""Whose batch norm statistics images shall have: the sent model's, the update's, or auxiliary images'."""

STARTS = ("uniform", "normal", "grey")

DRAWS = ("each", "average")
"""How a search treats what a policy may have drawn: one case after the other, or all of them in turn."""

AUXILIARY = 256
"""As many auxiliary images are looked at for their statistics."""


@dataclass(frozen=True, kw_only=True)
class GradientMatching(UpdateInversion):
    """Seeks the images whose gradient is the one that was seen, at most `most` for an update.

    What an update of several local steps moved is explained by simulating up to `simulate` of them, with
    images of their own for each epoch whose means `agreement` holds together; beyond that it is read as one
    gradient. `seconds`, if given, ends the search for an update; then the numbers depend on the machine. Of
    several `restarts` the one with the lowest objective counts; after the share `culled` of the steps only
    that one goes on. In the first share `rough` of the steps the passes round to bfloat16.

    An `adaptive` search knows the clients' defences. It matches what they leave of a gradient, and looks for
    the images before a transformation policy: of a single image with a descent for each case (`draws`) that
    the policy may have drawn, from each start. The images of a batch, and those of several simulated epochs,
    have too many cases together: they are sought as they were transformed, and then undone one by one. With
    `draws='average'` one descent lowers the mean over all cases: at every step each image is transformed as
    the policy might, by a case drawn anew.
    """

    most: int = 8
    labels: str = "counts"
    start: str = "uniform"
    distance: str = "cosine"
    weighting: str = "equal"
    optimiser: str = "adam"
    lr: float = 0.1
    steps: int = 4800
    schedule: str = "steps"
    warmup: int = 0
    signed: bool = True
    boxed: bool = True
    langevin: float = 0.0
    patience: float = 0.0
    restarts: int = 1
    culled: float = 1.0
    rough: float = 0.0
    tv: float = 0.0
    l2: float = 0.0
    batch_norm: float = 0.0
    statistics: str = "running"
    group: float = 0.0
    simulate: int = 16
    agreement: float = 1.0
    seconds: float | None = None
    adaptive: bool = False
    draws: str = "each"

    def __post_init__(self) -> None:
        super().__post_init__()
        choices = {
            "labels": SOURCES,
            "start": STARTS,
            "distance": tuple(DISTANCES),
            "weighting": WEIGHTINGS,
            "optimiser": OPTIMISERS,
            "schedule": SCHEDULES,
            "statistics": STATISTICS,
            "draws": DRAWS,
        }
        for option, choice in choices.items():
            check_choice(self.name, option, getattr(self, option), choice)
        for option in ("most", "steps", "restarts"):
            check_whole(self.name, option, getattr(self, option), 1)
        for option in ("warmup", "simulate"):
            check_whole(self.name, option, getattr(self, option), 0)
        for option in ("signed", "boxed", "adaptive"):
            check_flag(self.name, option, getattr(self, option))
        for option in ("tv", "l2", "batch_norm", "group", "langevin", "agreement"):
            check_number(self.name, option, getattr(self, option), 0)
        for option in ("patience", "culled", "rough"):
            check_number(self.name, option, getattr(self, option), 0, 1)
        check_number(self.name, "lr", self.lr, 0, open_low=True)
        if self.seconds is not None:
            check_number(self.name, "seconds", self.seconds, 0, open_low=True)

    @property
    def knows(self) -> tuple[str, ...]:
        """Labels, auxiliary images and the defences, where the options ask for them."""
        asked = {
            "labels": self.labels == "given",
            "auxiliary": bool(self.batch_norm) and self.statistics == "auxiliary",
            "defence": self.adaptive,
        }
        return tuple(name for name, wanted in asked.items() if wanted)

    @property
    def remark(self) -> str | None:
        """Whose batch norm statistics the images shall have, where these count."""
        return f"batch norm statistics: {_WHOSE[self.statistics]}" if self.batch_norm else None

    @property
    def pace(self) -> Pace:
        """How each descent steps."""
        return Pace(**{field.name: getattr(self, field.name) for field in fields(Pace)})

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        super().check_protocol(protocol, samples)
        check_source(self.labels, protocol, samples)

    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        count = min(update.samples, self.most)
        labels = guessed_labels(self.labels, update, count, knowledge)
        target, note = make_target(update, labels, count, self.simulate, rng)
        prior = self.statistics_prior(update, target, knowledge)
        known = adapt(target, update, required(knowledge.defence)) if self.adaptive else Adapted(target)
        solution = self.solve(known.target, rng, prior, known.draws)
        note = joined([note, known.note, solution.note, self.remark])
        return Rebuilt(
            solution.x,
            update.clients,
            None if self.labels == "given" else solution.labels,
            objective=solution.objective,
            snapshots=solution.snapshots,
            note=note,
        )

    def solve(
        self,
        target: Target,
        rng: torch.Generator,
        prior: StatisticsPrior | None = None,
        draws: Sequence[Draw] = (),
    ) -> Solution:
        """The images that explain `target`, with batch norm statistics as in `prior`.

        Where there are `draws`, the client transformed each image by one of them first.
        """
        began, objective = time.perf_counter(), Objective(self, target, prior)
        starts = [self.begin(target, rng) for _ in range(self.restarts)]
        client_of = {
            Descent(partial(objective, client=client), *start, self.pace, rng, self.phase): client
            for start in starts
            for client in self.clients(target, draws, rng)
        }
        descents = list(client_of)
        while active := [descent for descent in descents if not descent.ended]:
            if self.group and len(descents) > 1:
                objective.agreed = consensus(torch.stack([descent.x.detach()[0] for descent in descents]))
            for descent in active:
                descent.advance()
            if min(descent.place for descent in descents) >= self.culled * self.steps:
                descents = [min(descents, key=lambda descent: descent.lowest)]
            if self.seconds is not None and time.perf_counter() - began > self.seconds:
                break
        for descent in descents:
            descent.finish()
        best = min(descents, key=lambda descent: descent.lowest)
        if not math.isfinite(best.lowest):
            raise CannotRun("the network gives no finite gradient to compare with the one seen")
        return solution_of(target, best, client_of[best], draws)

    def clients(
        self, target: Target, draws: Sequence[Draw], rng: torch.Generator
    ) -> Sequence[Draw | AnyDraw]:
        """What each descent supposes that the client did to the images; `UNCHANGED` seeks them as trained."""
        if draws and self.draws == "average":
            return [AnyDraw(tuple(draws), rng)]
        return draws if draws and target.alone else [UNCHANGED]

    def begin(self, target: Target, rng: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Where a descent starts: images, the same in each copy, and soft labels where labels are sought."""
        size = (target.count, *target.shape)
        if self.start == "grey":
            x = torch.full(size, 0.5)
        else:
            x = (torch.randn if self.start == "normal" else torch.rand)(size, generator=rng)
        soft = torch.randn(target.count, target.classes, generator=rng) if target.labels is None else None
        dtype = target.gradient.dtype
        copies = x.to(dtype).expand(target.copies, *size).contiguous()
        return copies, None if soft is None else soft.to(dtype)

    def discrepancy(self, gradient: list[Tensor], matcher: Matcher) -> Tensor:
        """How far the images' gradient is from the one seen."""
        layers = layer_weights(self.weighting, len(gradient))
        weights = [weight * trust for weight, trust in zip(layers, matcher.trust)]
        return DISTANCES[self.distance](gradient, matcher.seen, weights)

    def prior_weight(self, share: float) -> float:
        """How much penalties count at this share of the way."""
        return 1.0

    def phase(self, share: float) -> tuple[float, bool]:
        """What of the objective depends on the share of the way: the weight of penalties, the precision."""
        return self.prior_weight(share), share < self.rough

    def penalty(self, x: Tensor, target: Target) -> Tensor:
        """What the images, shape (copies, n, C, H, W), are penalised by."""
        total = x.new_zeros(())
        if self.tv:
            total = total + self.tv * total_variation(x)
        if self.l2:
            total = total + self.l2 * energy(x)
        if len(x) > 1:
            # The mean of an epoch's images does not depend on the order in which they were seen.
            means = x.mean(1)
            total = total + self.agreement * (means - means.mean(0)).square().mean()
        return total

    def statistics_prior(
        self, update: AttackedUpdate, target: Target, knowledge: Knowledge
    ) -> StatisticsPrior | None:
        """The batch norm statistics that the images shall have; null where they do not count."""
        if not self.batch_norm:
            return None
        if self.statistics == "update":
            expected = statistics_in_update(update)
        elif self.statistics == "running":
            expected = sent_statistics(update)
        else:
            images = required(knowledge.auxiliary).x[:AUXILIARY]
            with torch.no_grad():  # of a copy: in training, a network notes what passes
                expected = passing_statistics(deepcopy(target.network), images)
        if not expected:
            raise CannotRun("the network has no batch norm whose statistics images could have")
        return StatisticsPrior(target.network, expected)


class Objective:
    """What a descent follows: how badly images explain the target, and how little they look like images.

    `agreed`, shape (n, C, H, W), is what the members of a group have in common.
    """

    def __init__(self, attack: GradientMatching, target: Target, prior: StatisticsPrior | None) -> None:
        self._attack, self._target, self._prior = attack, target, prior
        self._matcher = Matcher(target)
        self.agreed: Tensor | None = None

    def __call__(
        self, x: Tensor, soft: Tensor | None, share: float, client: Draw | AnyDraw = UNCHANGED
    ) -> Tensor:
        """The value for images, shape (copies, n, C, H, W), and soft labels, at this share of the way.

        The gradient is that of the images as `client` transforms them; the penalties are for what they were.
        """
        trained = client.apply(x)
        attack, network, prior = self._attack, self._target.network, self._prior
        labels = self._target.labels if soft is None else soft.softmax(1)
        weight, rough = attack.phase(share)
        precision = torch.autocast("cpu", torch.bfloat16, enabled=rough)
        with precision, watching_statistics(network) as statistics:
            gradient = self._matcher(trained, required(labels))
        value = attack.discrepancy(gradient, self._matcher)
        self._matcher.check_reaches(value, x)  # before penalties, which depend on images in any case
        if weight:
            value = value + weight * attack.penalty(x, self._target)
        if weight and prior is not None:
            found = statistics if prior.network is network else passing_statistics(prior.network, trained[0])
            value = value + weight * attack.batch_norm * statistics_distance(found, prior.expected)
        if self.agreed is not None:
            value = value + attack.group * (x[0] - self.agreed).square().flatten(1).sum(1).mean()
        return value


_WHOSE = {
    "running": "those that the model carries",
    "update": "those of the clients' batches, which travel with the update",
    "auxiliary": "those of auxiliary images",
}

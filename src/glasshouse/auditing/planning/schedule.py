"""From what an audit does to how long each of its tasks takes."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.finished import FINISHED
from glasshouse.auditing.planning.chores import Attacking, Chore, Ladder, Shadowed, Training
from glasshouse.auditing.planning.effort import Load, effort
from glasshouse.auditing.planning.pace import Pace
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import CENTRAL, Variant, plan_of
from glasshouse.defences import make_defences
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import PORTION
from glasshouse.learning.recipe import Recipe
from glasshouse.progress import Progress
from glasshouse.progress.time_left import Stage, arrivals, makespan

ROUND, SPREAD_ROUND = 0.01, 0.03
"""Seconds of a round beside what is timed: of one worker, or where several share it."""

CURVED, CURVED_AT_LEAST = 6.0, 0.05
"""Passes over the images for a top eigenvalue, and the seconds that it takes on any."""

ATTACKED = 0.2
"""Seconds of a target's attacks besides: handing out the case, and keeping what they found."""

PAGE, PAGE_TARGET = 2.0, 0.5
"""Seconds of the page, and of what it shows of each target."""


class Schedule:
    """The tasks of an audit as stages: `pace` is that of this machine, which has so many `workers`."""

    def __init__(self, experiment: Experiment, pace: Pace, workers: int) -> None:
        self._experiment, self._pace, self._workers = experiment, pace, workers
        self._schooled = 0

    def stages(self, chores: Iterable[Chore]) -> Iterator[Stage]:
        """A stage for each chore, in seconds of wall time, and one for the page."""
        targets: set[Variant] = set()
        for chore in chores:
            if isinstance(chore, Attacking):
                targets.add(chore.variant)
            yield self.stage(chore)
        page = (PAGE + PAGE_TARGET * len(targets)) * self._pace.fixed
        yield self._made("page", "page", [page], at_once=1)

    def stage(self, chore: Chore) -> Stage:
        """What becomes of one chore."""
        pace, workers = self._pace, self._workers
        if isinstance(chore, Training) and chore.together:
            return self._made(chore.label, "training", [self._alone(v) for v in chore.variants], workers)
        if isinstance(chore, Training):
            rounds = plan_of(self._experiment.setting, chore.variants[0]).rounds
            return self._made(chore.label, "training", [self._spread(chore.variants[0])] * rounds, at_once=1)
        if isinstance(chore, Shadowed):
            return self._made(chore.label, "shadow models", self._shadows(chore), workers)
        if isinstance(chore, Attacking):
            return self._made(chore.label, "attacks", self._attacks(chore), workers, ATTACKED * pace.fixed)
        if isinstance(chore, Ladder):
            return self._made(chore.label, "ladder", [chore.seconds * pace.fixed] * chore.rungs, workers)
        images = min(len(self._experiment.split.members), self._experiment.setting.audit.curvature)
        seconds = CURVED_AT_LEAST * pace.fixed + CURVED * images * pace.climb
        return self._made(chore.label, "curvature", [seconds], at_once=1)

    def _made(
        self, label: str, kind: str, jobs: Sequence[float], at_once: int, besides: float = 0.0
    ) -> Stage:
        """Wall seconds: as long as jobs of so many seconds of a core take, so many of them at once."""
        steps = arrivals(jobs, at_once)
        busy = sum(steps)
        longer = (busy + besides) / busy * self._pace.wait if busy else 0.0
        return Stage(label, tuple(step * longer for step in steps), kind)

    def _alone(self, variant: Variant) -> float:
        """The seconds of a whole training in one worker."""
        plan, sizes = plan_of(self._experiment.setting, variant), self._sizes(variant)
        clients = plan.participants(len(sizes)) * self._client(variant)
        test = len(self._experiment.split.test) * self._pace.ask
        fixed = ROUND * self._pace.fixed
        return plan.rounds * (clients + self._pace.of(variant).server + test + fixed)

    def _spread(self, variant: Variant) -> float:
        """The seconds of one round of a training whose clients are in all workers."""
        plan, sizes = plan_of(self._experiment.setting, variant), self._sizes(variant)
        clients = makespan([self._client(variant)] * plan.participants(len(sizes)), self._workers)
        test, ask = len(self._experiment.split.test), self._pace.ask
        portions = [min(PORTION, test - start) * ask for start in range(0, test, PORTION)]
        fixed = (SPREAD_ROUND if self._workers > 1 else ROUND) * self._pace.fixed
        return clients + self._pace.of(variant).server + makespan(portions, self._workers) + fixed

    def _sizes(self, variant: Variant) -> list[int]:
        split = self._experiment.split
        return [len(split.members)] if variant.strategy == CENTRAL else [len(held) for held in split.clients]

    def _client(self, variant: Variant) -> float:
        """The seconds of a client's part of a round, on average."""
        sizes, training = self._sizes(variant), self._experiment.setting.training
        recipe, rate = self._recipe(variant), self._pace.of(variant)
        local = (
            0 if variant.strategy == CENTRAL else min(training.local_test, len(self._experiment.split.test))
        )
        steps = sum(recipe.total_steps(size) for size in sizes) / len(sizes)
        return rate.client + rate.step * steps + local * self._pace.ask

    def _recipe(self, variant: Variant) -> Recipe:
        training, central = self._experiment.setting.training, variant.strategy == CENTRAL
        name = "fedavg" if central or variant == FINISHED else variant.strategy
        strategy: Strategy = STRATEGIES.make(name)
        return strategy.local(make_defences(variant.defence).recipe(training.recipe()))

    @cached_property
    def _shadowing(self) -> Shadowing:
        return Shadowing(self._experiment, Path(), Engine(1), Progress(quiet=True))

    def _shadows(self, chore: Shadowed) -> list[float]:
        """The seconds of each shadow model."""
        training, sets = self._shadowing.planned(chore.kind, chore.defence)
        rate = self._pace.of(Variant(training.strategy, chore.defence))
        recipe = make_defences(chore.defence).recipe(training.recipe)
        cohort = max(1, round(training.fraction * training.clients))
        split = self._experiment.split
        asked = (len(split.auxiliary) + len(split.members) + len(split.nonmembers)) * self._pace.ask
        seconds = []
        for chosen in sets:
            steps = recipe.total_steps(max(1, len(chosen.train) // training.clients))
            a_round = cohort * (rate.client + rate.step * steps) + rate.server + ROUND * self._pace.fixed
            seconds.append(training.rounds * a_round + asked)
        return seconds

    def _attacks(self, chore: Attacking) -> list[float]:
        """The seconds of each attack; one that cannot run takes hardly any."""
        load = self._load(chore.variant)
        prepared = 1 - (1 - 1 / self._workers) ** self._schooled  # by whichever worker had it before
        self._schooled += chore.variant.strategy != CENTRAL
        return [
            0.001 if planned.reason else effort(a.spec, a.access, load, prepared=prepared)
            for planned in chore.attacks
            for a in [planned.assignment]
        ]

    def _load(self, variant: Variant) -> Load:
        plan, sizes = plan_of(self._experiment.setting, variant), self._sizes(variant)
        observed = min(self._experiment.setting.audit.observe, plan.rounds)
        client = self._client(variant)
        return Load(self._experiment, self._pace, client, observed, plan.participants(len(sizes)), len(sizes))

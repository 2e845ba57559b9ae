"""The plan of an audit: what is trained, who attacks what, what cannot run, and how long all of it takes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from glasshouse.auditing.battery import all_variants
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.planning.chores import Attacking, Chore, Planned, Shadowed, Training, chores
from glasshouse.auditing.planning.pace import Pace, Untimed, measure
from glasshouse.auditing.planning.schedule import Schedule
from glasshouse.auditing.planning.searching import candidates, first_pass, guessed
from glasshouse.auditing.planning.words import data_lines, short, time_lines, whole
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import CENTRAL, Variant, plan_of
from glasshouse.defences import make_defences
from glasshouse.federation.conditions import Plan
from glasshouse.learning.engine import Engine
from glasshouse.learning.step import PLAIN
from glasshouse.progress import Progress
from glasshouse.progress.time_left import Stage
from glasshouse.spelling import defence_words
from glasshouse.verdicts.division import division_lines


@dataclass(frozen=True)
class Trained:
    """Models that are trained in the same way: `cohort` of `clients` in each of so many `rounds`."""

    name: str
    models: int
    rounds: int
    clients: int
    cohort: int


@dataclass(frozen=True)
class Seconds:
    """About how long an audit takes with so many `workers`, by kind of work.

    Where other work takes the machine's time, that makes it `wait` times as long.
    """

    by_kind: Mapping[str, float]
    workers: int
    wait: float

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self.by_kind.values())


@dataclass(frozen=True)
class AuditPlan:
    """What an audit will do, as it prints itself.

    `data` says what was made of the data and the network. `attacks` holds every attack on every target, with
    the `reason` why where it cannot run. With several `seeds` all of it is repeated. A search begins with so
    many defences that are `searched`; what follows depends on what it finds. `seconds` is null until it is
    estimated, and where it cannot be: `untimed` then says why.
    """

    title: str
    data: tuple[str, ...]
    trained: tuple[Trained, ...]
    attacks: tuple[Planned, ...]
    seeds: int = 1
    searched: int = 0
    untimed: str = ""
    seconds: Seconds | None = None

    @property
    def running(self) -> list[Planned]:
        """The attacks that can run."""
        return [planned for planned in self.attacks if planned.reason is None]

    @property
    def impossible(self) -> list[Planned]:
        """Those that cannot."""
        return [planned for planned in self.attacks if planned.reason is not None]

    def __str__(self) -> str:
        return "\n".join(whole(self))


class Planner:
    """Plans one audit: first what, which takes no time, then how long.

    A `finished` model is attacked as it is. Of a run that has begun in `folder`, only what is missing takes
    time.
    """

    def __init__(
        self,
        experiment: Experiment,
        engine: Engine,
        *,
        seeds: int = 1,
        finished: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._experiment, self._engine = experiment, engine
        self._seeds, self._finished, self._folder = seeds, finished, folder

    @cached_property
    def plan(self) -> AuditPlan:
        """What the audit does, without its seconds."""
        setting = self._experiment.setting
        everything = self._chores(None)
        attacks = [one for chore in everything if isinstance(chore, Attacking) for one in chore.attacks]
        return AuditPlan(
            title=f"{setting.model.name} on {setting.data.name}, seed {setting.seed}",
            data=tuple(self._told()),
            trained=tuple(_trained(self._experiment, everything)),
            attacks=tuple(attacks),
            seeds=self._seeds,
            searched=len(self._candidates),
        )

    def _told(self) -> Iterator[str]:
        """What was made of the data and the network."""
        experiment = self._experiment
        yield from data_lines(experiment.split) if self._finished else division_lines(experiment.division)
        yield from experiment.news

    def timed(self) -> tuple[AuditPlan, list[Stage]]:
        """The plan with its seconds, and the tasks that it consists of."""
        variants = [CENTRAL_ALONE] if self._finished else all_variants(self._experiment.setting)
        try:
            pace = measure(self._experiment, _by_need([*variants, *self._candidates]), self._engine)
        except Untimed as reason:
            return replace(self.plan, untimed=str(reason)), []
        *stages, page = self._stages(pace, self._folder)
        if self._seeds > 1:
            *again, _ = self._stages(pace, None)
            stages += again * (self._seeds - 1)
        stages.append(page)
        by_kind: dict[str, float] = {}
        for stage in stages:
            by_kind[stage.kind] = by_kind.get(stage.kind, 0.0) + stage.total
        seconds = Seconds(by_kind, self._engine.workers, pace.wait)
        return replace(self.plan, seconds=seconds), stages

    def _stages(self, pace: Pace, folder: Path | None) -> list[Stage]:
        """The stages of one seed; that of the page comes last."""
        schedule = Schedule(self._experiment, pace, self._engine.workers)
        *stages, page = schedule.stages(self._chores(folder))
        if self._candidates and stages:
            stages += guessed(stages, len(self._candidates))
        return [*stages, page]

    def _chores(self, folder: Path | None) -> list[Chore]:
        if self._experiment.setting.audit.searches and not self._finished:
            return [*first_pass(self._experiment, self._candidates, self._engine, folder)]
        return [*chores(self._experiment, self._engine, folder, finished=self._finished)]

    @cached_property
    def _candidates(self) -> list[Variant]:
        """The defences of the first pass of a search; none where none is wanted."""
        if self._finished or not self._experiment.setting.audit.searches:
            return []
        return candidates(self._experiment)


def announce(planner: Planner, progress: Progress) -> None:
    """Say what an audit is about to do, then how long it takes, and let `progress` know what to expect."""
    for line in short(planner.plan):
        progress.say(line)
    plan, stages = planner.timed()
    for line in time_lines(plan, first=""):
        progress.say(line)
    if stages:
        progress.expect(stages)


CENTRAL_ALONE = Variant(CENTRAL, "none")


def _by_need(variants: Sequence[Variant]) -> list[Variant]:
    """The undefended federation first, then what changes training: others are about as fast as the first."""
    return sorted(
        variants,
        key=lambda one: (one.name != "none", make_defences(one.defence).training() is PLAIN),
    )


def _trained(experiment: Experiment, everything: Sequence[Chore]) -> Iterator[Trained]:
    """A row for each kind of model that is trained."""
    for chore in everything:
        if isinstance(chore, Training):
            for variant in chore.variants:
                yield _target(experiment, variant, chore.canaries)
    shadowing = Shadowing(experiment, Path(), Engine(1), Progress(quiet=True))
    for chore in everything:
        if isinstance(chore, Shadowed):
            training, sets = shadowing.planned(chore.kind, chore.defence)
            under = "" if chore.defence == "none" else f", {defence_words(chore.defence)}"
            online = " on candidates" if chore.kind == "online" else ""
            cohort = Plan(fraction=training.fraction).participants(training.clients)
            name = f"shadow models{online}{under}"
            yield Trained(name, len(sets), training.rounds, training.clients, cohort)


def _target(experiment: Experiment, variant: Variant, canaries: str) -> Trained:
    plan, clients = plan_of(experiment.setting, variant), len(experiment.split.clients)
    name = defence_words(variant.defence)
    if variant.strategy == CENTRAL:
        name, clients = "central baseline", 1
    elif variant.defence == "none":
        name = f"federation, {variant.strategy}"
    if canaries:
        name = f"{name}, {canaries}"
    return Trained(name, 1, plan.rounds, clients, plan.participants(clients))

"""The models under attack and the shadow models beside them, trained once for all cells that ask."""

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from glasshouse.access import QueryAccess
from glasshouse.auditing.experiment import Experiment, prepare
from glasshouse.auditing.setting import AttackTable, DataTable, ModelTable, Setting, TrainingTable
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import train_target
from glasshouse.auditing.trial import Examination, Trial
from glasshouse.learning.evaluate import accuracy
from glasshouse.store import RunFolder, write_bytes
from glasshouse.studies.study import Workplace

CHECKPOINT = Path("work", "central", "latest.safetensors")


@dataclass(frozen=True)
class Sizes:
    """How much of everything at one scale; `members` are trained on for `rounds` of `epochs`."""

    members: int
    nonmembers: int
    auxiliary: int
    test: int
    shadows: int
    rounds: int
    epochs: int


@dataclass(frozen=True)
class Target:
    """One model under attack; one client means training in one place."""

    data: str
    model: str
    clients: int
    sizes: Sizes

    @property
    def mode(self) -> str:
        """The row of the paper's tables."""
        return "central" if self.clients == 1 else f"{self.clients}-clients"

    def setting(self, seed: int) -> Setting:
        """The audit that this target is taken from: IID clients, Adam, and shadows trained in one place."""
        sizes = self.sizes
        return Setting(
            seed=seed,
            data=DataTable(
                name=self.data,
                clients=self.clients,
                members=sizes.members,
                nonmembers=sizes.nonmembers,
                auxiliary=sizes.auxiliary,
                test=sizes.test,
            ),
            model=ModelTable(name=self.model),
            training=TrainingTable(
                rounds=sizes.rounds, epochs=sizes.epochs, optimiser="adam", lr=0.001, local_test=0
            ),
            audit=AttackTable(
                attacks=(), defences=(), shadows=sizes.shadows, shadow_training="central", observe=1
            ),
        )


@dataclass(frozen=True, eq=False)
class Court:
    """A trained target and the shadow models to attack it with."""

    trial: Trial
    shadowing: Shadowing
    _examined: dict[str, Examination] = field(default_factory=dict)

    @cached_property
    def train_accuracy(self) -> float:
        """The share of its own training images that the target classifies correctly."""
        return accuracy(self.trial.grantor.model, self.trial.experiment.split.images("members"))

    def examine(self, spec: str) -> Examination:
        """What one attack by the outsider makes of the target; each runs once."""
        if spec not in self._examined:
            self._examined[spec] = self.trial.examine(spec, QueryAccess, self.shadowing)
        return self._examined[spec]


class Courts:
    """Trains targets, and keeps the last one in memory for the next cell that asks for it."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Target, int, Path], Court] | None = None

    def of(self, target: Target, place: Workplace) -> Court:
        """The target, trained to the end."""
        key = (target, place.seed, place.shared)
        if self._last is None or self._last[0] != key:
            self._last = None  # before the next is made: data sets are large
            experiment, shadowing = _prepare(target, place)
            folder = _folder(target, place, experiment, "whole")
            strategy = "central" if target.clients == 1 else "fedavg"
            trial = train_target(experiment, folder, place.engine, place.progress, strategy, "none")
            self._last = (key, Court(trial, shadowing))
        return self._last[1]

    def matched(self, target: Target, place: Workplace) -> Court:
        """The central target, stopped when its train accuracy is closest to that of `target`."""
        wanted = self.of(target, place).train_accuracy
        central = dataclasses.replace(target, clients=1)
        experiment, shadowing = _prepare(central, place)
        best: Court | None = None
        for rounds in range(1, target.sizes.rounds + 1):
            court = Court(_central_after(central, experiment, rounds, place), shadowing)
            if best is None or abs(court.train_accuracy - wanted) < abs(best.train_accuracy - wanted):
                best = court
            if court.train_accuracy >= wanted:
                break
        assert best is not None
        return best


def _central_after(target: Target, experiment: Experiment, rounds: int, place: Workplace) -> Trial:
    """The central target after `rounds`, continued from the round before where that is kept."""
    sizes = dataclasses.replace(target.sizes, rounds=rounds)
    setting = dataclasses.replace(target, sizes=sizes).setting(place.seed)
    experiment = dataclasses.replace(experiment, setting=setting)
    folder = _folder(target, place, experiment, f"after-{rounds:03d}")
    before = _folder_path(target, place, f"after-{rounds - 1:03d}") / CHECKPOINT
    if before.exists() and not (folder.path / CHECKPOINT).exists():
        write_bytes(folder.path / CHECKPOINT, before.read_bytes())
    return train_target(experiment, folder, place.engine, place.progress, "central", "none")


def _prepare(target: Target, place: Workplace) -> tuple[Experiment, Shadowing]:
    experiment = prepare(target.setting(place.seed))
    return experiment, Shadowing(experiment, place.shared / "shadows", place.engine, place.progress)


def _folder(target: Target, place: Workplace, experiment: Experiment, stage: str) -> RunFolder:
    return RunFolder(_folder_path(target, place, stage), experiment.config())


def _folder_path(target: Target, place: Workplace, stage: str) -> Path:
    return place.shared / f"{target.data}-{target.model}-{target.mode}-seed-{place.seed}" / stage

"""The models under attack: one training in one place, or a federation of clients for as many epochs.

In one place the optimiser goes on from the first epoch to the last, and the state after each round's worth of
epochs is kept, for comparison with federations that fit their data as well. Clients begin each round with a
new optimiser, as in FedAvg. All shadow models are trained in one place.
"""

import dataclasses
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshouse.access import Protocol, QueryAccess
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.experiment import Experiment, prepare
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import CENTRAL, Variant, train_target
from glasshouse.data.dataset import Dataset
from glasshouse.data.sources import load
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.evaluate import hits
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.seeds import derive
from glasshouse.learning.step import Step
from glasshouse.measures.estimate import Estimate, proportion
from glasshouse.runfolder import RunFolder
from glasshouse.store import is_there, read_tensors, slug, write_tensors
from glasshouse.studies.study import Latest, Workplace


@dataclass(frozen=True, eq=False)
class TrainedTarget:
    """A model under attack, and the shares of training and test images that it classifies correctly.

    What each attack made of it is kept.
    """

    case: Case
    mode: str
    train: Estimate
    test: Estimate
    _examined: dict[str, Examination] = field(default_factory=dict)

    @property
    def train_accuracy(self) -> float:
        return self.train.value or 0.0

    def examine(self, spec: str) -> Examination:
        """What one attack by the outsider makes of it."""
        if spec not in self._examined:
            self._examined[spec] = examine(self.case, spec, QueryAccess, detailed=False)
        return self._examined[spec]


class Targets:
    """Trains targets, and keeps the last one in memory for the next cell that asks for it."""

    def __init__(self) -> None:
        self._latest: Latest[TrainedTarget] = Latest()

    def trained(self, setting: Setting, place: Workplace) -> TrainedTarget:
        """The target of a setting, trained to the end."""
        make = _central if setting.data.clients == 1 else _federated
        return self._latest.get((setting, place.seed, place.shared), lambda: make(setting, place))

    def matched(self, setting: Setting, place: Workplace) -> TrainedTarget:
        """The central target, stopped when its train accuracy is closest to that of the federated one."""
        wanted = self.trained(setting, place).train_accuracy
        targets = []
        for target in stopped(setting, place):
            targets.append(target)
            if target.train_accuracy >= wanted:
                break
        return min(targets, key=lambda target: abs(target.train_accuracy - wanted))


def mode_of(clients: int) -> str:
    """The line of the paper's tables; one client means training in one place."""
    return CENTRAL if clients == 1 else f"{clients}-clients"


def stopped(setting: Setting, place: Workplace) -> Iterator[TrainedTarget]:
    """The central target after each round's worth of epochs; it has no shadow models.

    Those of the others are trained to the end, and would be no models of one that was stopped.
    """
    experiment = _prepared(setting, place, clients=1)
    for file in _states(experiment, place):
        yield _fitted(experiment, _case_at(experiment, file))


def _central(setting: Setting, place: Workplace) -> TrainedTarget:
    experiment = _prepared(setting, place, clients=1)
    case = _case_at(experiment, _states(experiment, place)[-1])
    return _fitted(experiment, _shadowed(experiment, case, place))


def _federated(setting: Setting, place: Workplace) -> TrainedTarget:
    experiment = _prepared(setting, place, setting.data.clients)
    folder, variant = _folder(experiment, place), Variant("fedavg", "none")
    case = train_target(experiment, folder, place.engine, place.progress, variant).case
    return _fitted(experiment, _shadowed(experiment, case, place))


def _prepared(setting: Setting, place: Workplace, clients: int | None) -> Experiment:
    """The experiment of a seed, whose parts are drawn from training and test images together."""
    data = setting.data.model_copy(update={"clients": clients})
    whole = load(data.name)
    return prepare(
        setting.model_copy(update={"seed": place.seed, "data": data}), Dataset(whole.name, whole.pool)
    )


def _case_at(experiment: Experiment, file: Path) -> Case:
    """The central model in the state that a file holds."""
    model, pool = deepcopy(experiment.model), experiment.split.pool
    write_vector(model, read_tensors(file)[0]["state"])
    recipe = in_one_place(experiment.setting).training.recipe()
    return Case(
        subject=experiment.subject(CENTRAL, "none"),
        protocol=Protocol(experiment.model, Layout.of(model), recipe, pool.shape, pool.classes),
        model=model.eval(),
        truth=experiment.truth,
        auxiliary=experiment.auxiliary,
    )


def _shadowed(experiment: Experiment, case: Case, place: Workplace) -> Case:
    """The case with shadow models that are trained in one place."""
    central = dataclasses.replace(experiment, setting=in_one_place(experiment.setting))
    shadowing = Shadowing(central, place.shared / "shadows", place.engine, place.progress)
    return dataclasses.replace(case, shadows=shadowing.under("none"))


def _fitted(experiment: Experiment, case: Case) -> TrainedTarget:
    """The target, and how well its model fits."""
    assert case.model is not None
    train, test = (
        proportion(int(hits(case.model, images).sum()), len(images))
        for images in map(experiment.split.images, ("members", "test"))
    )
    return TrainedTarget(case, mode_of(len(experiment.split.clients)), train, test)


def in_one_place(setting: Setting) -> Setting:
    """The setting with all epochs of all rounds as one training."""
    training = setting.training
    epochs = training.rounds * training.epochs
    return setting.model_copy(
        update={"training": training.model_copy(update={"rounds": 1, "epochs": epochs})}
    )


def _states(experiment: Experiment, place: Workplace) -> list[Path]:
    """The files of the states of the central training after each round's worth of epochs."""
    setting = experiment.setting
    rounds, recipe = setting.training.rounds, in_one_place(setting).training.recipe()
    folder = _folder(experiment, place)
    files = [folder.work / f"after-{number:03d}.safetensors" for number in range(1, rounds + 1)]
    if not all(map(is_there, files)):
        held, kept = experiment.split.images("members"), iter(files)
        network = laid_out(deepcopy(experiment.model))
        with place.progress.task("training, central", rounds) as task:

            def keep(state: Tensor) -> None:
                write_tensors(next(kept), {"state": state})
                task.advance()

            keeping = Keeping(recipe.total_steps(len(held)) // rounds, keep)
            keep(fit(network, experiment.start, held, recipe, derive(setting.seed, CENTRAL), keeping))
    return files


def _folder(experiment: Experiment, place: Workplace) -> RunFolder:
    """Where the training of a target is kept."""
    setting, mode = experiment.setting, mode_of(len(experiment.split.clients))
    name = slug(f"{setting.data.name}-{setting.model.name}-{mode}-seed-{place.seed}")
    return RunFolder(place.shared / name, experiment.config(), experiment.origin)


class Keeping(Step):
    """Hands the model's state to `keep` each time that so many `batches` are done; it changes nothing.

    The last state is what the training returns.
    """

    def __init__(self, batches: int, keep: Callable[[Tensor], None]) -> None:
        self._batches, self._keep, self._done = batches, keep, 0

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        if self._done and self._done % self._batches == 0:
            self._keep(read_vector(model))
        self._done += 1
        return x

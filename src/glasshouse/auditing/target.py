"""Training what is put on trial: the federation under a defence, or the central baseline."""

import dataclasses

from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.grants import Grantor
from glasshouse.auditing.setting import TrainingTable
from glasshouse.auditing.trial import Trial, slug
from glasshouse.defences import make_defences
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.engine import Engine
from glasshouse.learning.seeds import derive
from glasshouse.progress import Progress
from glasshouse.store import RunFolder, write_tensors


def train_target(
    experiment: Experiment, folder: RunFolder, engine: Engine, progress: Progress, strategy: str, defence: str
) -> Trial:
    """The federation under `defence`, trained to the end of its plan.

    The strategy `central` is the baseline: a single client that holds everybody's data and always takes part.
    """
    setting = experiment.setting
    training = setting.training
    central = strategy == "central"
    plan = Plan(
        rounds=training.rounds,
        fraction=1.0 if central else training.fraction,
        target_accuracy=training.target_accuracy,
        observe=() if central else _watched(training, setting.audit.observe),
    )
    federation = Federation(
        experiment.model,
        dataclasses.replace(experiment.split, clients=(experiment.split.members,))
        if central
        else experiment.split,
        training.recipe(),
        engine=engine,
        strategy=STRATEGIES.make("fedavg" if central else strategy),
        defences=make_defences(defence),
        channel=CHANNELS.make("plain" if central else training.channel),
        local_test=0 if central else training.local_test,
        seed=derive(setting.seed, "federation"),
    )
    name = strategy if central else defence
    record = Record(folder.work / slug(name))
    history = federation.run(
        experiment.start, plan, record=record, progress=progress, label=f"training, {name}"
    )
    ends = _ends(len(history.rounds), setting.audit.observe)
    seen = [record.observed(number) for number in ends if number in plan.observe]
    grantor = Grantor(experiment.model, federation, history, seen)
    write_tensors(folder.path / "weights" / f"{slug(name)}.safetensors", grantor.model.state_dict())
    return Trial(experiment, folder, defence, strategy, federation, history, grantor)


def _watched(training: TrainingTable, count: int) -> tuple[int, ...]:
    """The rounds to keep: the ends, or all where nobody knows beforehand which will be the last."""
    early = training.target_accuracy is not None
    return tuple(range(training.rounds)) if early else _ends(training.rounds, count)


def _ends(rounds: int, count: int) -> tuple[int, ...]:
    """The first and the last rounds, `count` together: what is new shows early, what stays shows late."""
    first = -(-count // 2)
    return tuple(number for number in range(rounds) if number < first or number >= rounds - (count - first))

"""What an audit attacks: the federation trained under a defence, or the central baseline."""

import dataclasses
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glasshouse.access import Access, AggregateAccess, PayloadAccess, ReportAccess, UpdateAccess
from glasshouse.auditing.case import Case, protocol_of
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.setting import Setting
from glasshouse.defences import make_defences, settled_spec, split_defences
from glasshouse.exhibits import TrainingPoint
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import History, Record
from glasshouse.federation.live import LiveClients
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import write_vector
from glasshouse.learning.seeds import derive
from glasshouse.progress import Progress
from glasshouse.provenance import work_name
from glasshouse.runfolder import RunFolder
from glasshouse.store import slug, write_tensors

CENTRAL = "central"
"""The strategy of the baseline: a single client that holds everybody's data and always takes part."""

READS_ROUNDS = (UpdateAccess, AggregateAccess, ReportAccess, PayloadAccess)
"""The accesses to what the server saw while the model was trained."""


@dataclass(frozen=True)
class Variant:
    """One of the trainings that an audit compares: a strategy under a defence."""

    strategy: str
    defence: str

    @property
    def name(self) -> str:
        """What tells it from the others of an audit: the defence, or that it is central."""
        return CENTRAL if self.strategy == CENTRAL else self.defence

    @property
    def stem(self) -> str:
        """A name for its files."""
        return work_name(self.name, split_defences(self.defence))

    @property
    def cell(self) -> str:
        """The cell of its findings."""
        return f"{self.strategy}/{self.defence}"


@dataclass(frozen=True, eq=False)
class Target:
    """A trained model as a case, which test images it gets right, bool of shape (N,), and its curve.

    `seconds` are those of a core that its training took; null where it was not trained here. `settled` is the
    defence with the noise that was solved for, which others may train under, too.
    """

    variant: Variant
    case: Case
    hits: np.ndarray
    rounds: int
    curve: tuple[TrainingPoint, ...] = ()
    seconds: float | None = None
    settled: str = "none"


@dataclass(frozen=True)
class Watched:
    """The rounds of a training of which a record was ordered, and whether with every single update."""

    rounds: tuple[int, ...]
    updates: bool

    def covers(self, plan: Plan) -> bool:
        """Whether the record has all that `plan` asks for."""
        return {*plan.observe} <= {*self.rounds} and (self.updates or not plan.observe_updates)


def train_target(
    experiment: Experiment,
    folder: RunFolder,
    engine: Engine,
    progress: Progress,
    variant: Variant,
    reads: Iterable[type[Access]] = (),
) -> Target:
    """The target of `variant`, trained to the end of its plan, or read from the folder where it is there.

    Of the observed rounds it holds what somebody with one of the accesses `reads` would read, and no more.
    """
    setting, reads = experiment.setting, frozenset(reads)
    federation, history, record = train(experiment, folder, engine, progress, variant, reads)
    plan = plan_of(setting, variant, reads)
    conditions = federation.conditions(plan)
    watched = ends(len(history.rounds), setting.audit.observe)
    observed = [number for number in watched if number in plan.observe and history.rounds[number].clients]
    model = deepcopy(experiment.model)
    write_vector(model, history.vector)
    case = Case(
        subject=experiment.subject(variant.strategy, variant.defence),
        protocol=protocol_of(federation, experiment.model),
        model=model.eval(),
        rounds=tuple(record.observed(number) for number in observed),
        sizes=tuple(federation.sizes),
        clients=LiveClients(federation, history.vector),
        truth=experiment.truth,
        auxiliary=experiment.auxiliary,
        defence=make_defences(variant.defence).settled(conditions),
        promises=make_defences(variant.defence).promises(conditions),
        directions=None if experiment.canaries is None else experiment.canaries.directions,
    )
    write_tensors(weights_file(folder.path, variant), model.state_dict())
    hits = federation.evaluator.hits(history.vector).numpy()
    seconds = sum(row.seconds for row in history.rounds)
    settled = settled_spec(variant.defence, conditions)
    curve = tuple(_curve(variant, history, setting.seed))
    return Target(variant, case, hits, len(history.rounds), curve, seconds, settled)


def weights_file(folder: Path, variant: Variant) -> Path:
    """Where the final weights lie; they are written when the training is done."""
    return folder / "weights" / f"{slug(variant.name)}.safetensors"


def share_trained(setting: Setting, folder: RunFolder, variant: Variant) -> float:
    """How much of a training is done, from 0 to 1, in whichever process it runs."""
    return min(1.0, Record(folder.work / variant.stem).rounds() / plan_of(setting, variant).rounds)


def train(
    experiment: Experiment,
    folder: RunFolder,
    engine: Engine,
    progress: Progress,
    variant: Variant,
    reads: frozenset[type[Access]],
) -> tuple[Federation, History, Record]:
    """The trained federation with its history; the record in the folder is where a later call goes on."""
    setting, federation = experiment.setting, federation_of(experiment, variant, engine)
    record, plan = Record(folder.work / variant.stem), plan_of(setting, variant, reads)
    federation = federation.settled(plan)
    _drop_if_watched_less(folder, variant, plan)
    history = federation.run(
        experiment.start,
        plan,
        record=record,
        progress=progress,
        label=f"training, {variant.name}",
    )
    return federation, history, record


def federation_of(experiment: Experiment, variant: Variant, engine: Engine) -> Federation:
    """Who trains together in `variant`, and how."""
    setting, central = experiment.setting, variant.strategy == CENTRAL
    training, split = setting.training, experiment.split
    if central:
        split = dataclasses.replace(split, clients=(split.members,))
    return Federation(
        experiment.model,
        split,
        training.recipe(),
        engine=engine,
        strategy=STRATEGIES.make("fedavg" if central else variant.strategy),
        defences=make_defences(variant.defence),
        channel=CHANNELS.make("plain" if central else training.channel),
        local_test=0 if central else training.local_test,
        canaries=experiment.canaries,
        seed=derive(setting.seed, "federation"),
    )


def _drop_if_watched_less(folder: RunFolder, variant: Variant, plan: Plan) -> None:
    """Remove a training whose record lacks what `plan` asks for: an edited attack may read more."""
    watched = f"{variant.stem}/watched"
    before = folder.kept(watched, Watched)
    if before is None or not before.covers(plan):
        folder.drop(variant.stem)
        folder.keep(watched, Watched(plan.observe, plan.observe_updates))


def plan_of(setting: Setting, variant: Variant, reads: frozenset[type[Access]] = frozenset()) -> Plan:
    """How long `variant` trains, and what is kept of it for somebody with the accesses `reads`."""
    training, central = setting.training, variant.strategy == CENTRAL
    defences = make_defences(variant.defence)
    rounds, stopping = defences.rounds(training.rounds), defences.stopping()
    watched = not central and not reads.isdisjoint(READS_ROUNDS)
    return Plan(
        rounds=rounds,
        fraction=1.0 if central else training.fraction,
        target_accuracy=training.target_accuracy,
        observe=_watched(rounds, stops_early(setting, variant), setting.audit.observe) if watched else (),
        observe_updates=UpdateAccess in reads,
        patience=None if stopping is None else stopping.patience,
    )


def stops_early(setting: Setting, variant: Variant) -> bool:
    """Whether the training may end before its planned rounds."""
    stopping = make_defences(variant.defence).stopping()
    return stopping is not None or setting.training.target_accuracy is not None


def _watched(rounds: int, early: bool, count: int) -> tuple[int, ...]:
    """The rounds to keep: the ends, or all where nobody knows beforehand which will be the last."""
    return tuple(range(rounds)) if early else ends(rounds, count)


def ends(rounds: int, count: int) -> tuple[int, ...]:
    """The first and the last rounds, `count` together: what is new shows early, what stays shows late."""
    first = -(-count // 2)
    return tuple(number for number in range(rounds) if number < first or number >= rounds - (count - first))


def _curve(variant: Variant, history: History, seed: int) -> Iterator[TrainingPoint]:
    """Accuracy, and the bytes to and from a client, round by round."""
    for row in history.rounds:
        yield TrainingPoint(
            cell=variant.cell,
            defence=variant.defence,
            strategy=variant.strategy,
            seed=seed,
            round=row.number + 1,
            acc_global=row.acc_global,
            acc_local=row.acc_local,
            down=row.down,
            up=row.up,
        )

"""A record as a case: what the servers saw, the final model, and the truth where the user gives it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from glasshouse.access import Protocol
from glasshouse.auditing.case import Case
from glasshouse.auditing.experiment import Experiment, check_names
from glasshouse.auditing.recorded.holders import Holders, ordered, read_holders
from glasshouse.auditing.recorded.told import as_told, assumed, notes, sizes_of
from glasshouse.auditing.recorded.updates import Expected, observed
from glasshouse.auditing.setting import AttackTable, Setting
from glasshouse.auditing.target import ends
from glasshouse.errors import BadInput, quoted
from glasshouse.evidence.truth import Truth
from glasshouse.federation.channels.channel import Channel, Ideal, Plain
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.findings import Subject
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.seeds import derive
from glasshouse.models.files import read_named
from glasshouse.models.freezing import freeze
from glasshouse.models.loading import checked_copy, seeded_model, users_own
from glasshouse.models.registry import MODELS
from glasshouse.models.shapes import Shape
from glasshouse.recording.description import Description
from glasshouse.recording.reader import RecordedRound, Recording, read_recording
from glasshouse.registry import parse_spec


@dataclass(frozen=True, kw_only=True)
class Described(Ideal):
    """A protocol of somebody else's that delivers the sum alone, as the record describes it."""

    words: str = ""

    @property
    def described(self) -> str:
        return self.words or "the sum alone, by a protocol that the record does not describe"


@dataclass(frozen=True, eq=False)
class Recorded:
    """A record, ready to be attacked.

    With members there is an `experiment` that says who held what, for shadow models; `lacking` names a client
    of whose images none are given. `assumed` says what the record does not tell of the training, `notes` what
    else a reader has to know.
    """

    recording: Recording
    setting: Setting
    case: Case
    names: tuple[str, ...]
    experiment: Experiment | None
    assumed: str
    notes: tuple[str, ...]
    lacking: str | None = None

    @property
    def news(self) -> list[str]:
        """What a reader has to know of the record, in words."""
        copies = "" if self.experiment is None else self.experiment.copies
        return [*filter(None, (*self.notes, copies, self.assumed))]


def recorded_setting() -> Setting:
    """The attacks of a usual audit, without what would train the federation anew."""
    return Setting(audit=AttackTable(defences=(), central=False, ladder=False))


def prepare_recorded(
    folder: Path, setting: Setting, given: Mapping[str, Any], model: nn.Module | str | None
) -> Recorded:
    """Read and check a record, and make a case of it; nothing that it names is imported.

    `given` may hold `members`, `nonmembers` and `auxiliary` images; `model` is the network or its name, where
    it is not that of the record.
    """
    check_names(setting)
    recording = read_recording(folder)
    description, numbers = recording.description, ordered(recording.clients)
    holders = read_holders(given, numbers, description.shape, description.classes, setting.model.image_size)
    task = _task(recording, holders)
    network, named = _network(recording, task, setting, model)
    setting = as_told(recording, setting, named, holders)
    expected = Expected.of(network)
    expected.check(recording.first)
    _put_frozen(recording, network, expected)
    rounds = _watched(recording.rounds, setting.audit.observe)
    case = Case(
        subject=Subject(
            source="audit",
            defence="none",
            strategy=description.strategy,
            data=setting.data.name,
            model=named,
            seed=setting.seed,
        ),
        protocol=_protocol(network, expected, setting, description, task),
        model=_final(recording, network, expected),
        rounds=tuple(observed(one, expected, numbers) for one in rounds),
        sizes=sizes_of(recording.rounds, numbers),
        auxiliary=None if holders is None else holders.pool[holders.parts["auxiliary"]],
    )
    recorded = Recorded(
        recording,
        setting,
        case,
        tuple(numbers),
        None,
        "; ".join(assumed(description)),
        tuple(notes(recording, rounds, holders, numbers)),
    )
    return recorded if holders is None else _judged(recorded, holders, network, isinstance(model, nn.Module))


def _judged(recorded: Recorded, holders: Holders, network: nn.Module, live: bool) -> Recorded:
    """With the truth, where the members are known."""
    if not len(holders.parts["members"]):
        return recorded
    split = holders.split()
    experiment = Experiment(
        recorded.setting, split, network, read_vector(network), True, live=live, notes=recorded.notes
    )
    case = dataclasses.replace(recorded.case, truth=_truth(experiment, holders, recorded.names))
    lacking = None if holders.clients is None else next(_without(holders.clients, recorded.names), None)
    return dataclasses.replace(recorded, case=case, experiment=experiment, lacking=lacking)


def _truth(experiment: Experiment, holders: Holders, names: Sequence[str]) -> Truth:
    """The truth by the numbers of the record's clients; non-members are the test images, too.

    What clients hold is known where it is of all of them.
    """
    truth, clients = experiment.truth, holders.clients or ()
    number_of = np.array([k for k, held in enumerate(clients) if len(held)] or [0])
    holder = np.where(truth.holder >= 0, number_of[truth.holder], -1) if len(truth.holder) else truth.holder
    test = experiment.split.images("nonmembers")
    if any(_without(clients, names)):
        clients = ()
    return dataclasses.replace(
        truth,
        clients=clients,
        holder=holder,
        names=tuple(names) if clients else (),
        test=test if len(test) else None,
        test_places=experiment.split.nonmembers,
    )


def _without(clients: Sequence[np.ndarray], names: Sequence[str]) -> Iterator[str]:
    """The names of clients of whose images none are given."""
    return (name for name, held in zip(names, clients) if not len(held))


def _network(
    recording: Recording, task: tuple[Shape, int], setting: Setting, model: nn.Module | str | None
) -> tuple[nn.Module, str]:
    """The network, in whatever state, and its name."""
    if isinstance(model, nn.Module):
        network, named = checked_copy(model, *task), type(model).__name__
    else:
        named = model or _named(recording)
        network = seeded_model(named, *task, derive(setting.seed, "weights"))
    freeze(network, setting.model.train)
    return network, named


def _named(recording: Recording) -> str:
    """The record's own name of a model, where it is one of the zoo: code that it names is not imported."""
    named = recording.description.model
    if named is None:
        raise BadInput(f"{recording.folder} names no model; give the one that was trained with --model")
    if users_own(named) or parse_spec(named, "model")[0] not in MODELS.places:
        raise BadInput(
            f"{recording.folder} names the model {quoted(named)}, which is none of Glasshouse; code that a "
            "record names is not imported: give it with --model if it is yours"
        )
    return named


def _task(recording: Recording, holders: Holders | None) -> tuple[Shape, int]:
    """The shape of an image and the number of classes, as the record or the images say."""
    shape, classes = recording.description.shape, recording.description.classes
    if holders is not None:
        shape, classes = holders.pool.shape, holders.pool.classes
    if shape is None or classes is None:
        what = "model.shape" if shape is None else "model.classes"
        raise BadInput(
            f"{recording.folder} does not say {what}; write it into federation.json, or give --members"
        )
    return shape, classes


def _protocol(
    network: nn.Module,
    expected: Expected,
    setting: Setting,
    description: Description,
    task: tuple[Shape, int],
) -> Protocol:
    strategy: Strategy = STRATEGIES.make(setting.training.strategy)
    channel: Channel = Plain()
    if description.channel == "sum":
        channel = Described(words=description.described or "")
    recipe = strategy.local(setting.training.recipe())
    return Protocol(network, expected.layout, recipe, *task, channel, strategy)


def _watched(rounds: Sequence[RecordedRound], count: int) -> list[RecordedRound]:
    """The rounds that are attacked: the first and the last of those recorded."""
    return [rounds[place] for place in ends(len(rounds), count)]


def _final(recording: Recording, network: nn.Module, expected: Expected) -> nn.Module | None:
    if recording.final is None:
        return None
    model = deepcopy(network)
    write_vector(model, expected.vector(recording.final))
    return model.eval()


def _put_frozen(recording: Recording, network: nn.Module, expected: Expected) -> None:
    """Frozen tensors are no part of what is sent, and come from whichever file holds them first."""
    if expected.layout.frozen:
        saved, state = read_named(recording.first), network.state_dict()
        held = {name: saved[name] for name in expected.layout.frozen if name in saved}
        network.load_state_dict(state | held)

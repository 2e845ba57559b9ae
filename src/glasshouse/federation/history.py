"""The record of a federation: its curve, what the server saw, and a checkpoint after every round."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from glasshouse.errors import BadInput, Fault
from glasshouse.federation.rows import Rows, RowWriter, begin_anew, damaged
from glasshouse.federation.updates import Delivery, Row, StoredUpdate, Update
from glasshouse.store import read_notes, read_tensors, write_tensors


@dataclass(frozen=True)
class Round:
    """The numbers of one round; an accuracy is null where no model of its kind was scored.

    `down` and `up` are the bytes that travel to and from one client on average: plain numbers without
    headers, or, through the channel "secure", its masked numbers, keys and shares. Those called `own` are on
    the classes that each participant holds, the mean over the participants. `seconds` are those of a
    core that clients, channel and server took for it, without the tests.
    """

    number: int
    clients: tuple[int, ...]
    acc_global: float | None
    acc_local: float | None
    down: int = 0
    up: int = 0
    acc_held_out: float | None = None
    acc_global_own: float | None = None
    acc_local_own: float | None = None
    seconds: float = dataclasses.field(default=0.0, compare=False)


@dataclass(frozen=True, eq=False)
class Observed:
    """One round as the server saw it: the model sent, shape (P,), the delivery, and the payload sent.

    Where clients have other numbers of samples in every round, `sizes` says how many each had in this one.
    """

    number: int
    sent: Tensor
    delivery: Delivery
    payload: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    sizes: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class History:
    """A federation so far: the current global model, shape (P,), and the numbers of its rounds.

    `memory` is what the server remembers, and `kept` what each client does.
    """

    vector: Tensor
    rounds: tuple[Round, ...] = ()
    memory: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    kept: Mapping[int, Mapping[str, Tensor]] = dataclasses.field(default_factory=dict)


class Record:
    """Keeps a federation's history and the observed rounds in a folder, or in memory where none is given.

    What a client remembers has a file for each client and round, and the checkpoint names the ones in force:
    a round writes the files of its participants only, and can be killed at any time. The single updates of an
    observed round have a file of their own, which is mapped and not read into memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._observed: dict[int, Observed] = {}
        self._kept: dict[int, tuple[int, Mapping[str, Tensor]]] = {}

    def save(self, history: History) -> None:
        """Replace the checkpoint."""
        if self._folder is None:
            return
        number, before = len(history.rounds), dict(self._kept)
        for client, tensors in history.kept.items():
            if client not in before or before[client][1] is not tensors:
                write_tensors(self._kept_file(client, number), dict(tensors))
                self._kept[client] = (number, tensors)
        memory = {f"memory.{name}": tensor for name, tensor in history.memory.items()}
        notes = {
            "rounds": json.dumps([dataclasses.asdict(row) for row in history.rounds]),
            "kept": json.dumps({client: written for client, (written, _) in self._kept.items()}),
        }
        write_tensors(self._folder / "latest.safetensors", {"global": history.vector} | memory, notes)
        for client, (written, _) in before.items():
            if self._kept[client][0] != written:
                self._kept_file(client, written).unlink(missing_ok=True)

    def rounds(self) -> int:
        """How many rounds the last checkpoint has, in whichever process they are run."""
        if self._folder is None:
            return 0
        return len(json.loads(read_notes(self._folder / "latest.safetensors").get("rounds", "[]")))

    def load(self) -> History | None:
        """The history at the last checkpoint, if there is one."""
        if self._folder is None or not (self._folder / "latest.safetensors").exists():
            return None
        file = self._folder / "latest.safetensors"
        with _whole(file):
            tensors, notes = read_tensors(file)
            rows = [Round(**row | {"clients": tuple(row["clients"])}) for row in json.loads(notes["rounds"])]
            self._kept = {
                int(client): (number, read_tensors(self._kept_file(int(client), number))[0])
                for client, number in json.loads(notes.get("kept", "{}")).items()
            }
            vector = tensors["global"]
        kept = {client: remembered for client, (_, remembered) in self._kept.items()}
        return History(vector, tuple(rows), _under("memory", tensors), kept)

    def observe(self, observed: Observed) -> None:
        """Keep what the server saw in one round."""
        if self._folder is None:
            self._observed[observed.number] = observed
            return
        delivery = observed.delivery
        tensors = {"sent": observed.sent, "mean": delivery.mean}
        tensors |= {f"payload.{name}": tensor for name, tensor in observed.payload.items()}
        for client, report in delivery.reports.items():
            tensors |= {f"report.{client}.{name}": tensor for name, tensor in report.items()}
        notes = {"clients": delivery.clients, "samples": delivery.samples, "updates": None}
        if delivery.updates is not None:
            notes["updates"] = [
                (update.client, update.samples, place)
                for update, place in zip(delivery.updates, self._places(observed.number, delivery.updates))
            ]
        write_tensors(self._round_file(observed.number), tensors, {"round": json.dumps(notes)})

    def observed(self, number: int) -> Observed:
        """What the server saw in round `number`."""
        if self._folder is None:
            return self._observed[number]
        with _whole(self._round_file(number)):
            tensors, metadata = read_tensors(self._round_file(number))
            notes = json.loads(metadata["round"])
            clients, samples, listed = (notes[name] for name in ("clients", "samples", "updates"))
            sent, mean = tensors["sent"], tensors["mean"]
        updates = None if listed is None else self._updates(number, listed)
        reports: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under("report", tensors).items():
            client, _, entry = name.partition(".")
            reports.setdefault(int(client), {})[entry] = tensor
        delivery = Delivery(mean, samples, tuple(clients), updates, reports=reports)
        return Observed(number, sent, delivery, _under("payload", tensors))

    def updates_file(self, number: int) -> Path | None:
        """Where the single updates of round `number` belong; null where the record is in memory."""
        return None if self._folder is None else self._folder / f"round-{number:04d}-updates.safetensors"

    def _places(self, number: int, updates: Sequence[Update]) -> list[int]:
        """The rows that `updates` have in the file of their round; writes those that are elsewhere."""
        file = self.updates_file(number)
        assert file is not None
        places = [_place(update, file.absolute()) for update in updates]
        if None not in places:
            return [place for place in places if place is not None]
        with RowWriter(file) as writer:
            for update in updates:
                writer.add(update.delta.numpy()[None])
            writer.finish()
        return list(range(len(updates)))

    def _updates(self, number: int, notes: Sequence[Sequence[int]]) -> tuple[Update, ...]:
        """The updates, from their clients, sample counts and rows in the file."""
        file = self.updates_file(number)
        assert file is not None
        rows = Rows(file)
        if any(place >= len(rows) for _, _, place in notes):
            raise damaged(file, f"it has {len(rows)} rows, and more were written")
        return tuple(StoredUpdate(client, samples, Row(rows, place)) for client, samples, place in notes)

    def _kept_file(self, client: int, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"client-{client:04d}-{number:04d}.safetensors"

    def _round_file(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"round-{number:04d}.safetensors"


def _place(update: Update, file: Path) -> int | None:
    """The row that is the update's delta, all of it, in `file`; null where it is not there."""
    if not isinstance(update, StoredUpdate) or not isinstance(update.row, Row):
        return None
    row = update.row
    whole = row.length in (None, row.rows.shape[1])
    return row.place if whole and row.rows.path == file else None


@contextmanager
def _whole(file: Path) -> Iterator[None]:
    """Say what to do about a file of a record that is missing, or damaged, or of something else."""
    try:
        yield
    except BadInput as error:
        fault, _, _ = str(error).partition(";")
        raise Fault(f"{fault}; {begin_anew(file.parent)}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(file, f"{type(error).__name__}: {error}") from error


def _under(head: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `head`, without it."""
    start = f"{head}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}

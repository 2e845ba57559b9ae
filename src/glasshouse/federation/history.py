"""The record of a federation: its curve, what the server saw, and a checkpoint after every round."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.federation.updates import Delivery, Update
from glasshouse.store import read_tensors, write_tensors


@dataclass(frozen=True)
class Round:
    """The numbers of one round; an accuracy is null where no model of its kind was scored.

    `down` and `up` are the bytes that travel to and from one client as plain numbers, without masks, headers
    and the messages that set up a protocol.
    """

    number: int
    clients: tuple[int, ...]
    acc_global: float | None
    acc_local: float | None
    down: int = 0
    up: int = 0


@dataclass(frozen=True, eq=False)
class Observed:
    """One round as the server saw it: the model sent, shape (P,), the delivery, and the payload sent."""

    number: int
    sent: Tensor
    delivery: Delivery
    payload: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)


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
    a round writes the files of its participants only, and can be killed at any time.
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

    def load(self) -> History | None:
        """The history at the last checkpoint, if there is one."""
        if self._folder is None or not (self._folder / "latest.safetensors").exists():
            return None
        file = self._folder / "latest.safetensors"
        tensors, notes = read_tensors(file)
        if "global" not in tensors or "rounds" not in notes:
            raise BadInput(f"{file} is not a checkpoint of a federation; delete it and run again")
        rows = [Round(**row | {"clients": tuple(row["clients"])}) for row in json.loads(notes["rounds"])]
        self._kept = {
            int(client): (number, read_tensors(self._kept_file(int(client), number))[0])
            for client, number in json.loads(notes.get("kept", "{}")).items()
        }
        kept = {client: remembered for client, (_, remembered) in self._kept.items()}
        return History(tensors["global"], tuple(rows), _under("memory", tensors), kept)

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
        samples = [update.samples for update in delivery.updates or ()]
        if delivery.updates is not None:
            tensors["deltas"] = torch.stack([update.delta for update in delivery.updates])
        notes = {"clients": list(delivery.clients), "samples": delivery.samples, "each": samples}
        write_tensors(self._round_file(observed.number), tensors, {"round": json.dumps(notes)})

    def observed(self, number: int) -> Observed:
        """What the server saw in round `number`."""
        if self._folder is None:
            return self._observed[number]
        tensors, metadata = read_tensors(self._round_file(number))
        notes = json.loads(metadata["round"])
        updates = None
        if "deltas" in tensors:
            updates = tuple(map(Update, notes["clients"], notes["each"], tensors["deltas"]))
        reports: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under("report", tensors).items():
            client, _, entry = name.partition(".")
            reports.setdefault(int(client), {})[entry] = tensor
        clients = tuple(notes["clients"])
        delivery = Delivery(tensors["mean"], notes["samples"], clients, updates, reports=reports)
        return Observed(number, tensors["sent"], delivery, _under("payload", tensors))

    def _kept_file(self, client: int, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"client-{client:04d}-{number:04d}.safetensors"

    def _round_file(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"round-{number:04d}.safetensors"


def _under(head: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `head`, without it."""
    start = f"{head}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}

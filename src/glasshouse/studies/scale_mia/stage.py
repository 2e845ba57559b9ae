"""Rounds with fresh victims: who holds a batch, what the server is granted, and how its images are scored."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.access import BlindServerAccess, ServerAccess
from glasshouse.auditing.grants import Grantor, Sent
from glasshouse.auditing.scoring import Score, score
from glasshouse.auditing.truth import Truth
from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.defences import make_defences
from glasshouse.errors import BadInput
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation
from glasshouse.federation.history import History
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.updates import Delivery
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.measures.pictures import AUXILIARY, match
from glasshouse.studies.scale_mia.targets import Prepared

CLIENTS = 8
"""As many clients are in a sum as in the paper, if they can share the batch equally."""

NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Crowd:
    """Who holds a batch: `clients` in the sum with equal shares, and `missing` that vanish before it."""

    batch: int
    clients: int
    missing: int
    after: int
    options: tuple[str, ...] = ()

    @property
    def present(self) -> int:
        """How many take part in a round."""
        return self.clients + self.missing

    @property
    def each(self) -> int:
        """How many images a client holds."""
        return self.batch // self.clients

    @property
    def channel(self) -> str:
        """The way of their updates to the server."""
        if self.clients == 1:
            return "ideal"  # a secure sum of one client does not exist
        dropouts = {"dropout_before": self.missing, "dropout_after": self.after}
        shares = [f"{name}={count / self.present:.6f}" for name, count in dropouts.items() if count]
        return f"secure({', '.join([*self.options, *shares])})"


def crowd(batch: int, *options: str) -> Crowd:
    """Clients for a batch; of eight or more, one vanishes before it masks and one after (and is summed).

    `options` are those of the channel `secure`.
    """
    clients = next(count for count in (CLIENTS, 10, batch) if batch % count == 0)
    lossy = int(clients >= CLIENTS)
    return Crowd(batch, clients, lossy, lossy, options)


@dataclass(frozen=True)
class Conditions:
    """What an attack meets: the clients' recipe and strategy, and their defence."""

    recipe: Recipe
    strategy: str
    defence: str = "none"


STEP = Recipe(batch_size=0, lr=0.1)
ONE_STEP = Conditions(STEP, "fedsgd")
"""As in the paper: one step of learning rate 0.1 on all of a client's images."""


@dataclass(frozen=True, eq=False)
class Judged:
    """One round's evidence and its scores; `psnr` in dB, shape (N,), and which samples got an image."""

    evidence: Reconstructions
    scores: tuple[Score, ...]
    psnr: np.ndarray
    returned: np.ndarray


class Stage:
    """A federation of strangers: each round has clients of its own, with images no other round has."""

    def __init__(
        self,
        prepared: Prepared,
        group: Crowd,
        rounds: int,
        engine: Engine,
        seed: int,
        conditions: Conditions = ONE_STEP,
    ) -> None:
        self.prepared, self.group, self.conditions = prepared, group, conditions
        held = group.present * group.each
        self.rounds = min(rounds, len(prepared.victims) // held)
        if not self.rounds:
            raise BadInput(
                f"{len(prepared.victims)} images of {prepared.target.stem} are too few for {held} in a round"
            )
        self._pool = prepared.victims[: self.rounds * held]
        positions = np.arange(self.rounds * held).reshape(-1, group.each)
        self._clients = tuple(positions)
        federation = Federation(
            prepared.network,
            Split(self._pool, self._clients, NOBODY, NOBODY, NOBODY),
            conditions.recipe,
            engine=engine,
            strategy=STRATEGIES.make(conditions.strategy),
            defences=make_defences(conditions.defence),
            channel=CHANNELS.make(group.channel),
            seed=derive(seed, "stage"),
        )
        start = read_vector(prepared.network)
        self._grantor = Grantor(prepared.network, federation, History(start), [])
        self.channel = federation.channel.described

    @property
    def sent(self) -> list[Sent]:
        """What the last server sent."""
        return self._grantor.sent

    def accesses(self, *, changes_network: bool = False) -> Iterator[BlindServerAccess]:
        """The server's access to the clients of each round; attacks that ask once all meet the same."""
        granted = self._grantor.grant(BlindServerAccess, changes_network=changes_network)
        assert isinstance(granted, BlindServerAccess)
        for number in range(self.rounds):
            own = _only(granted, number * self.group.present, self.group.present)
            assert isinstance(own, BlindServerAccess)
            yield own

    def judge(self, number: int, evidence: Reconstructions) -> Judged:
        """Score what was made of the victims of round `number`."""
        first = number * self.group.present
        own = dataclasses.replace(evidence, clients=tuple(first + client for client in evidence.clients))
        originals = self._truth.held_by(own.clients).x
        made = match(originals, evidence.x)
        return Judged(evidence, tuple(score(own, self._truth)), made.psnr, made.returned)

    def pictures(self, number: int, evidence: Reconstructions) -> tuple[Tensor, Tensor]:
        """The originals of a round and what was made of each, both (N, C, H, W)."""
        first = number * self.group.present
        originals = self._truth.held_by([first + client for client in evidence.clients]).x
        return originals, match(originals, evidence.x).guess

    @cached_property
    def _truth(self) -> Truth:
        """What the auditor knows: the clients' images, and the auxiliary ones for the blind guess."""
        guesses = self.prepared.auxiliary[:AUXILIARY]
        own = self._pool
        pool = Images(torch.cat([own.x, guesses.x]), torch.cat([own.y, guesses.y]), own.classes, own.names)
        split = Split(pool, self._clients, NOBODY, len(own) + np.arange(len(guesses)), NOBODY)
        nothing: np.ndarray = NOBODY.astype(bool)
        counts = np.zeros((len(self._clients), own.classes), dtype=np.int64)
        rng = torch_rng(0, "blind guess")
        return Truth(own[:0], NOBODY, nothing, counts, self.prepared.network, rng, split=split)


def _only(access: ServerAccess, first: int, count: int) -> ServerAccess:
    """The same access to `count` of its clients, numbered from 0."""

    def exchange(
        vector: Tensor, clients: Sequence[int], apart: Mapping[int, Tensor] | None = None
    ) -> Delivery:
        moved = {first + client: own for client, own in (apart or {}).items()}
        delivery = access.exchange(vector, [first + client for client in clients], moved or None)
        return dataclasses.replace(delivery, clients=tuple(client - first for client in delivery.clients))

    rebuilt: Callable[[nn.Module], ServerAccess] | None = None
    if access.rebuilt is not None:
        rebuild = access.rebuilt
        rebuilt = lambda network: _only(rebuild(network), first, count)  # noqa: E731
    sizes = access.sizes[first : first + count]
    return dataclasses.replace(access, sizes=sizes, exchange=exchange, rebuilt=rebuilt)

"""What the auditor knows and no attack is told, and what one attack is asked."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import nn

from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.evidence.batches import compose
from glasshouse.learning.seeds import numpy_rng
from glasshouse.measures.families import Hypothesis

NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Truth:
    """Who holds what: `clients` are positions in `pool`.

    The `candidates` are members and non-members in an order that tells nothing; `holder`, shape (N,), is the
    number of the client that holds each, -1 for non-members. Evasion attacks start from `test`. `by_user`
    says that whole users or clients, not single records, were drawn as members, and `groups`, shape (N,),
    which of them each candidate is of, as far as that is known. Where the data name clients,
    `names` are theirs, and `origin`, shape (N,), is the client that each candidate comes from, or -1. `seed`
    decides which batches are asked about, `noise_seed` the noise that evasion attacks are compared with.
    Where `canaries` were inserted, each by a fair coin, the candidates are those: records, of which the coin
    chose one of two, those of the first half or of the second, or clients, of which it chose the sign.
    `places` are the positions in the pool of the candidates, `test_places` those of the test images, where
    these are in it.
    """

    pool: Images
    clients: tuple[np.ndarray, ...] = ()
    candidates: Images | None = None
    holder: np.ndarray = field(default_factory=lambda: NOBODY)
    test: Images | None = None
    by_user: bool = False
    seed: int = 0
    noise_seed: int = 0
    canaries: Literal["records", "clients"] | None = None
    names: tuple[str, ...] = ()
    places: np.ndarray = field(default_factory=lambda: NOBODY)
    test_places: np.ndarray = field(default_factory=lambda: NOBODY)
    origin: np.ndarray = field(default_factory=lambda: NOBODY)
    groups: np.ndarray = field(default_factory=lambda: NOBODY)

    @cached_property
    def label_counts(self) -> np.ndarray:
        """How many images of each class each client holds, shape (clients, classes)."""
        self._check_clients()
        return np.stack([self.pool[positions].label_counts().numpy() for positions in self.clients])

    def held_by(self, clients: Sequence[int]) -> Images:
        """A copy of all images that `clients` hold, one client's after the other's."""
        self._check_clients()
        return self.pool[np.concatenate([self.clients[client] for client in clients])]

    def _check_clients(self) -> None:
        if not self.clients:
            raise CannotRun("nobody knows what clients hold, so nothing can be said of the attack's answer")


@dataclass(frozen=True, eq=False)
class Question:
    """What one attack is asked, and all that its answer is judged by.

    Where the question is about batches, shape (G, B) of positions in `candidates`, `member` has shape (G,),
    else (N,). Where an answer is `detailed`, it is broken down by client and round, and pictures are shown.
    Bounds on what a record or a client spends go by the hypotheses about their privacy. `places`, shape (N,),
    are the positions of the candidates in the pool.
    """

    truth: Truth
    candidates: Images
    holder: np.ndarray
    member: np.ndarray
    model: nn.Module | None
    auxiliary: Images
    rng: torch.Generator
    batches: np.ndarray | None = None
    detailed: bool = True
    record: Hypothesis = field(default_factory=Hypothesis)
    client: Hypothesis = field(default_factory=Hypothesis)
    places: np.ndarray = field(default_factory=lambda: NOBODY)

    @property
    def records(self) -> np.ndarray:
        """What each question is about, shape (N,) or (G,): the position of a record, or a batch's digest."""
        known = len(self.places) == len(self.candidates)
        places = self.places if known else np.arange(len(self.candidates))
        if self.batches is None:
            return places
        return np.array([_digest(places[batch]) for batch in self.batches], dtype=np.int64)


def _digest(places: np.ndarray) -> int:
    """A number for a batch, the same in whatever order its records stand."""
    content = np.sort(places).astype("<i8").tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest())


def about_records(truth: Truth, unit: int, share: float) -> tuple[np.ndarray | None, np.ndarray]:
    """The batches of `unit` records to ask about, null for single ones, and which answers are "member".

    A batch that counts as trained on has the `share` of its records from the members.
    """
    holder = truth.holder
    if unit == 1 or not len(holder):
        return None, holder >= 0
    rng = numpy_rng(truth.seed, "questions", unit)
    inside, outside = compose(np.flatnonzero(holder >= 0), np.flatnonzero(holder < 0), unit, share, rng)
    order = rng.permutation(len(inside) + len(outside))
    return np.concatenate([inside, outside])[order], order < len(inside)

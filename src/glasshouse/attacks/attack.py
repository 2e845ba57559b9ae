"""What an attack is: its access, what it is told beyond it, and the evidence it returns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import Access
from glasshouse.data.images import Images
from glasshouse.federation.shadows import Shadows

Norm = Literal["linf", "l2"]


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Everything an attack can be told beyond its access; a field that was not granted is null.

    `batches`, shape (G, B), are positions in `candidates`: the question is then not whether a record was
    trained on, but whether a batch was. `shadows` never saw a candidate; each of the `online_shadows` was
    trained on half of them.
    """

    candidates: Images | None = None
    auxiliary: Images | None = None
    batches: np.ndarray | None = None
    shadows: Shadows | None = None
    online_shadows: Shadows | None = None

    def described(self) -> tuple[str, ...]:
        """What is granted, in words for a finding."""
        words = []
        if self.candidates is not None:
            words.append(f"the {len(self.candidates)} records in question, with their labels")
        if self.auxiliary is not None:
            words.append(f"{len(self.auxiliary)} auxiliary images from the same distribution, with labels")
        if self.batches is not None:
            words.append(f"the records in {len(self.batches)} batches of {self.batches.shape[1]}")
        words += [shadows.described for shadows in (self.shadows, self.online_shadows) if shadows is not None]
        return tuple(words)


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """For each candidate or batch a score, higher for members, and a decision; both of shape (N,).

    A server may also say whose member it would be, `by_client` of shape (clients, N), and what it would have
    said after each observed round, `by_round` from the round's number to scores of shape (N,).
    """

    scores: np.ndarray
    decisions: np.ndarray
    by_client: np.ndarray | None = None
    by_round: dict[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Sources:
    """For each candidate the number of the client that is most likely to hold it, shape (N,)."""

    clients: np.ndarray


@dataclass(frozen=True, eq=False)
class CountedLabels:
    """How many training samples of each class some clients hold together, shape (classes,)."""

    clients: tuple[int, ...]
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Label counts, one for each client or group of clients."""

    counted: tuple[CountedLabels, ...]


@dataclass(frozen=True, eq=False)
class Nearness:
    """How far each candidate lies from each of K samples that the adversary holds, shape (K, N)."""

    distances: np.ndarray


@dataclass(frozen=True, eq=False)
class AdversarialExamples:
    """Perturbed candidates for each of E limits `eps`, ascending: `x` has shape (E, N, C, H, W).

    They lie within their limit of the originals: in every pixel where `norm` is "linf", over all pixels
    together where it is "l2". `signs` say, in words, why the model may hide its gradients rather than be
    robust; `hidden`, shape (N,), marks the images that fell only to attacks without gradients, if any ran.
    """

    x: Tensor
    eps: tuple[float, ...]
    norm: Norm = "linf"
    signs: tuple[str, ...] = ()
    hidden: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Reconstructions:
    """Images, shape (K, C, H, W) in [0, 1], believed to be among the training data of `clients`.

    There are at most as many as these clients hold together. `offline` are the seconds that went into
    preparing the attack, once for all rounds; `online` those from the update to the images.
    `note` says what it took beyond a round with one model, and what kept it from more.
    """

    x: Tensor
    clients: tuple[int, ...]
    offline: float
    online: float
    note: str | None = None


Evidence = Reconstructions | MembershipScores | Sources | LabelCounts | Nearness | AdversarialExamples


class CannotRun(Exception):
    """The attack does not apply here; the message says why, and becomes the reason of a null finding."""


class Attack(ABC):
    """One attack: hyper-parameters as keyword-only fields, `run` from access to evidence.

    `changes_network` asks for a server that may change the architecture, which the finding then names.
    """

    family: ClassVar[str]
    needs: ClassVar[tuple[type[Access], ...]]
    told: ClassVar[tuple[str, ...]] = ()
    changes_network: ClassVar[bool] = False

    @property
    def query_unit(self) -> int:
        """How many records a question about membership is about: one, or those of a batch."""
        return 1

    @property
    def member_share(self) -> float:
        """The share of members in a batch that counts as trained on; the other batches have none."""
        return 1.0

    @abstractmethod
    def run(self, access: Any, knowledge: Knowledge, rng: torch.Generator) -> Evidence:
        """Attack through `access`, of one of the types in `needs`, knowing what `told` names."""

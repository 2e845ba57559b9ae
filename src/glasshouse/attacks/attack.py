"""What an attack is: its access, what it is told beyond it, and the evidence it returns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch

from glasshouse.access import Access
from glasshouse.data.images import Images
from glasshouse.evidence.evidence import Evidence
from glasshouse.federation.shadows import Shadows

if TYPE_CHECKING:
    from glasshouse.attacks.crafted.surrogate import Surrogate

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Everything an attack can be told beyond its access; a field that was not granted is null.

    `batches`, shape (G, B), are positions in `candidates`: the question is then not whether a record was
    trained on, but whether a batch was. `shadows` never saw a candidate; each of the `online_shadows` was
    trained on half of them. A `surrogate`, an autoencoder of the auxiliary images, is granted where the case
    holds one, whether or not the attack asks.
    """

    candidates: Images | None = None
    auxiliary: Images | None = None
    batches: np.ndarray | None = None
    shadows: Shadows | None = None
    online_shadows: Shadows | None = None
    surrogate: "Surrogate | None" = None

    def described(self) -> tuple[str, ...]:
        """What is granted, in words for a finding."""
        words = []
        if self.candidates is not None:
            words.append(f"the {len(self.candidates)} records in question, with their labels")
        if self.auxiliary is not None:
            words.append(f"{len(self.auxiliary)} auxiliary images from the same distribution, with labels")
        if self.batches is not None:
            words.append(f"the records in {len(self.batches)} batches of {self.batches.shape[1]}")
        if self.surrogate is not None:
            words.append(self.surrogate.described)
        words += [shadows.described for shadows in (self.shadows, self.online_shadows) if shadows is not None]
        return tuple(words)


def required(value: T | None) -> T:
    """A part of its knowledge that an attack asks for, and so has."""
    assert value is not None
    return value


class Attack(ABC):
    """One attack: hyper-parameters as keyword-only fields, `run` from access to evidence.

    `changes_network` asks for a server that may change the architecture, which the finding then names.
    """

    family: ClassVar[str]
    needs: ClassVar[tuple[type[Access], ...]]
    knows: ClassVar[tuple[str, ...]] = ()
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
        """Attack through `access`, of one of the types in `needs`, knowing what `knows` names."""

"""What an attack is: its access, what it is told beyond it, and the evidence it returns."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch

from glasshouse.access import Access, Protocol
from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.errors import quoted
from glasshouse.evidence import KINDS
from glasshouse.evidence.evidence import Evidence
from glasshouse.federation.canaries import Directions
from glasshouse.federation.shadows import Shadows

if TYPE_CHECKING:
    from glasshouse.attacks.crafted.surrogate import Surrogate

T = TypeVar("T")

KNOWLEDGE = ("candidates", "auxiliary", "labels", "shadows", "online_shadows", "defence", "directions")
"""What an attack may ask to know."""

SHADOWS = ("shadows", "online_shadows")
"""Of these, the shadow models."""

DEFENDED = "defended_"
"""Stands before the kind of shadow models that are trained under the defences that the clients use."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Everything an attack can be told beyond its access; a field that was not granted is null.

    `batches`, shape (G, B), are positions in `candidates`: the question is then not whether a record was
    trained on, but whether a batch was. `shadows` never saw a candidate; each of the `online_shadows` was
    trained on half of them. `labels` counts, by the number of each client, its images of each class, shape
    (classes,). A `surrogate`, an autoencoder of the auxiliary images, is granted where the case
    holds one, whether or not the attack asks. `defence` are the clients' defences with their settings, made
    anew for the attack: what they drew at random nobody is told. `directions` are those of canary clients,
    without the signs that they were sent with.
    """

    candidates: Images | None = None
    auxiliary: Images | None = None
    batches: np.ndarray | None = None
    shadows: Shadows | None = None
    online_shadows: Shadows | None = None
    surrogate: "Surrogate | None" = None
    labels: Mapping[int, np.ndarray] | None = None
    defence: Stack | None = None
    directions: Directions | None = None

    def described(self) -> tuple[str, ...]:
        """What is granted, in words for a finding."""
        words = []
        if self.candidates is not None:
            words.append(f"the {len(self.candidates)} records in question, with their labels")
        if self.auxiliary is not None:
            words.append(f"{len(self.auxiliary)} auxiliary images from the same distribution, with labels")
        if self.labels is not None:
            words.append("how many images of each class each client holds")
        if self.batches is not None:
            words.append(f"the records in {len(self.batches)} batches of {self.batches.shape[1]}")
        if self.defence is not None and self.defence.defences:
            words.append(f"the defences and their settings, without their random draws: {self.defence}")
        if self.directions is not None:
            words.append(f"the directions of {len(self.directions)} canary clients, without their signs")
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
    changes_network: ClassVar[bool] = False

    @property
    def knows(self) -> tuple[str, ...]:
        """What it is given beyond its access, of the names in `KNOWLEDGE`."""
        return ()

    @property
    def query_unit(self) -> int:
        """How many records a question about membership is about: one, or those of a batch."""
        return 1

    @property
    def member_share(self) -> float:
        """The share of members in a batch that counts as trained on; the other batches have none."""
        return 1.0

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        """Why it cannot work on clients that follow `protocol`; null where nothing is known against it.

        What it reads, an update or a sum of them, holds `samples` images at least. The answer depends on
        nothing that is only known after training: a plan asks before it, and `examine` asks again.
        """
        return None

    @abstractmethod
    def run(self, access: Any, knowledge: Knowledge, rng: torch.Generator) -> Evidence:
        """Attack through `access`, of one of the types in `needs`, knowing what `knows` names."""


# What a user's own class says of itself may be anything; these take no more of it than can be used.


class Nobody(Access):
    """The access of an attack that names none that there is."""

    adversary = "nobody"


def declared(attack: Attack, name: str) -> Any:
    """What an attack says of itself under `name`; null where it says nothing, or fails to."""
    try:
        return getattr(attack, name, None)
    except Exception:  # from a property of the user's own
        return None


def accesses(attack: Attack) -> tuple[type[Access], ...]:
    """Each access that an attack works with; that of `Nobody` where it names anything else, or nothing."""
    needs = declared(attack, "needs")
    if not isinstance(needs, tuple | list) or not needs or not all(map(_is_granted, needs)):
        return (Nobody,)
    return tuple(dict.fromkeys(needs))


def _is_granted(access: object) -> bool:
    known = isinstance(access, type) and issubclass(access, Access) and hasattr(access, "adversary")
    return known and access.__module__ == Access.__module__


def known_to(attack: Attack) -> tuple[str, ...]:
    """What an attack asks to know, of what there is."""
    knows = declared(attack, "knows")
    return tuple(name for name in knows if name in KNOWLEDGE) if isinstance(knows, tuple | list) else ()


def shadow_kinds(attack: Attack) -> dict[str, str]:
    """From the name of the shadow models that an attack asks to know to the kind that it is to be given.

    An attack that is `adaptive` gets those that were trained under the defence.
    """
    informed = declared(attack, "adaptive") is True
    return {name: DEFENDED * informed + name for name in known_to(attack) if name in SHADOWS}


def kind_of(attack: Attack) -> type[Evidence] | None:
    """The kind of evidence that attacks of this family return; null where the family is unknown."""
    family = declared(attack, "family")
    if not isinstance(family, str) or family not in KINDS.places:
        return None
    kind: type[Evidence] = KINDS.load(family)
    return kind


def misdeclared(attack: Attack) -> str | None:
    """What an attack says of itself that cannot be used, in words; null where all can."""
    if accesses(attack) == (Nobody,):
        needs = quoted(declared(attack, "needs"))
        return f"the attack needs {needs}; it takes a tuple of access types, as in (QueryAccess,)"
    if kind_of(attack) is None:
        family = quoted(declared(attack, "family"))
        return f"the attack's family {family} is unknown; known: {', '.join(KINDS)}"
    knows = declared(attack, "knows")
    if not isinstance(knows, tuple | list) or len(known_to(attack)) < len(knows):
        return f"the attack asks to know {quoted(knows)}; it takes a tuple of {', '.join(KNOWLEDGE)}"
    unit, share = attack.query_unit, attack.member_share
    if isinstance(unit, bool) or not isinstance(unit, int) or unit < 1:
        return f"the attack asks about {quoted(unit)} records at once; it takes a whole number from 1"
    if not isinstance(share, int | float) or not 0 < share <= 1:
        return f"the attack's share of members is {quoted(share)}; it lies above 0 and is at most 1"
    return None

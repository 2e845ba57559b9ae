"""What an attack is: its access, what it is told beyond it, and the evidence it returns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import Access
from glasshouse.data.images import Images


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Everything an attack can be told beyond its access; a field that was not granted is null."""

    candidates: Images | None = None
    auxiliary: Images | None = None

    def only(self, granted: tuple[str, ...]) -> "Knowledge":
        """This knowledge without what is not in `granted`."""
        return Knowledge(**{name: getattr(self, name) for name in granted})

    def missing(self, granted: tuple[str, ...]) -> str | None:
        """The name of something in `granted` that the setting holds no images for."""
        return next((name for name in granted if not getattr(self, name)), None)

    def described(self) -> tuple[str, ...]:
        """What is granted, in words for a finding."""
        words = {
            "candidates": "the {} records in question, with their labels",
            "auxiliary": "{} auxiliary images from the same distribution, with labels",
        }
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return tuple(words[name].format(len(images)) for name, images in given if images is not None)


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """For each candidate a score, higher for members, and a decision; both of shape (N,)."""

    scores: np.ndarray
    decisions: np.ndarray


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
class AdversarialExamples:
    """Perturbed candidates, shape (N, C, H, W), within `eps` of the originals in every pixel."""

    x: Tensor
    eps: float


Evidence = MembershipScores | LabelCounts | AdversarialExamples


class CannotRun(Exception):
    """The attack does not apply here; the message says why, and becomes the reason of a null finding."""


class Attack(ABC):
    """One attack: hyper-parameters as keyword-only fields, `run` from access to evidence."""

    family: ClassVar[str]
    needs: ClassVar[tuple[type[Access], ...]]
    told: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def run(self, access: Any, knowledge: Knowledge, rng: torch.Generator) -> Evidence:
        """Attack through `access`, of one of the types in `needs`, knowing what `told` names."""

"""What an attack returns, and what the auditor makes of it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from glasshouse.errors import CannotRun, quoted
from glasshouse.evidence.truth import Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.exhibits import Exhibits
from glasshouse.measures.estimate import Estimate

NOTHING = Exhibits()


@dataclass(frozen=True)
class Score:
    """One metric with the score of a blind guess."""

    metric: str
    estimate: Estimate
    chance: float | None = None


@dataclass(frozen=True, eq=False)
class ImagePair:
    """An original beside what the attack made of it, both of shape (C, H, W), with words for the page.

    The original is null where nobody knows it.
    """

    name: str
    original: Tensor | None
    result: Tensor
    caption: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class Judgement:
    """Everything the auditor reads off one piece of evidence.

    `exhibits` say nothing yet of attack and case. `outcomes` are of evasion attacks: for each eps, 0 for no
    attack, which candidates the model gets right, bool of shape (N,).
    """

    scores: tuple[Score, ...]
    exhibits: Exhibits = NOTHING
    pictures: tuple[ImagePair, ...] = ()
    outcomes: Mapping[float, np.ndarray] = field(default_factory=dict)


class Evidence(ABC):
    """An attack's answer; each kind is one file of this folder and one line of its registry.

    `about` says what the attack is asked about: members and non-members, test images, or the clients.
    `metrics` and `families` say how its scores, and the attacks that return it, are spoken of and judged.
    """

    about: ClassVar[Literal["records", "test images", "clients"]]
    metrics: ClassVar[Mapping[str, Metric]]
    families: ClassVar[Mapping[str, Family]]

    @abstractmethod
    def judge(self, question: Question) -> Judgement:
        """Compare with the truth; raises `CannotRun` where the answer cannot be judged."""

    @classmethod
    def of_failed_round(cls, reason: str, shape: tuple[int, int, int], clients: int) -> "Evidence":
        """What is left where the attack's round failed, with `clients` that hold images of `shape`."""
        raise CannotRun(f"the round failed: {reason}")


def check_numbers(what: str, values: object, *shape: int | None, kinds: str = "iuf") -> None:
    """Refuse an answer that is no array of finite numbers of `shape`, in which null stands for any length.

    `kinds` are those of numpy's types: "b" for truth values, "iu" for whole numbers, "f" for floats.
    """
    numbers = "truth values" if kinds == "b" else "numbers"
    expected = f"it takes {numbers} as an array of shape ({', '.join(map(_length, shape))})"
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        found = f"of {values.dtype}" if isinstance(values, np.ndarray) else f"as a {type(values).__name__}"
        raise CannotRun(f"the attack returned {what} {found}; {expected}")
    fits = len(values.shape) == len(shape) and all(
        side is None or side == length for side, length in zip(shape, values.shape)
    )
    if not fits:
        raise CannotRun(f"the attack returned {what} of shape {values.shape}; {expected}")
    if not np.isfinite(values).all():
        raise CannotRun(f"the attack returned {what} that are not finite numbers")


def check_clients(clients: Sequence[int], count: int) -> None:
    """Refuse an answer about clients that there are not, about one of them twice, or about none."""
    known = isinstance(clients, tuple | list) and all(client in range(count) for client in clients)
    if not known or not clients or len(set(clients)) < len(clients):
        raise CannotRun(
            f"the attack answers for clients {quoted(clients)}; they are numbered 0 to {count - 1}"
        )


def _length(side: int | None) -> str:
    return "any" if side is None else str(side)

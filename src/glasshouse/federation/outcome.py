"""What comes back from the clients of a round, and what the round came to."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.federation.clients import Trained
from glasshouse.federation.strategies.strategy import Tensors, carried
from glasshouse.federation.updates import Delivery


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a round came to: the delivery, the participants' mean local accuracy and what they keep.

    `bytes` is what one client sent, on average.
    """

    delivery: Delivery
    accuracy: float | None
    kept: dict[int, Tensors]
    bytes: int


class Arrived:
    """Who replied in a round and what, who refused and why, and how good the clients' own models are."""

    def __init__(self) -> None:
        self.clients: list[int] = []
        self.reports: dict[int, Tensors] = {}
        self.refused: dict[int, str] = {}
        self._kept: dict[int, Tensors] = {}
        self._accuracies: list[float] = []

    def unpack(self, trained: Iterable[Trained]) -> Iterator[Tensor]:
        """The deltas of each block in which anybody trained, as it arrives."""
        for result in trained:
            self.clients += result.clients
            self.reports |= result.reports
            self._kept |= result.kept
            self.refused |= result.refused
            self._accuracies += result.accuracies
            if result.clients:
                yield torch.from_numpy(result.deltas)

    def outcome(self, delivery: Delivery) -> Outcome:
        """The round; clients of whom nothing arrived stay as they were before it."""
        accuracy = sum(self._accuracies) / len(self._accuracies) if self._accuracies else None
        kept = {k: self._kept[k] for k in delivery.clients if self._kept[k]}
        sent = {"model": delivery.mean} | ({} if delivery.summed is None else {"summed": delivery.summed})
        told = [carried(report) for report in delivery.reports.values()]
        return Outcome(delivery, accuracy, kept, carried(sent) + sum(told) // max(1, len(told)))

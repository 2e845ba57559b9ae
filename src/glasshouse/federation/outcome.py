"""What the clients of a round send back, and the outcome of the round."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.federation.clients import BlockResult
from glasshouse.federation.strategies.strategy import Tensors, byte_count
from glasshouse.federation.updates import Delivery


@dataclass(frozen=True, eq=False)
class Outcome:
    """A round's delivery, the mean accuracy of the participants' models, and what the participants keep.

    `bytes` is what one client sends, on average.
    """

    delivery: Delivery
    accuracy: float | None
    kept: dict[int, Tensors]
    bytes: int


class Replies:
    """Collects what the blocks of a round return: replies, refusals with their reasons, and accuracies."""

    def __init__(self) -> None:
        self.clients: list[int] = []
        self.reports: dict[int, Tensors] = {}
        self.refused: dict[int, str] = {}
        self._kept: dict[int, Tensors] = {}
        self._accuracies: list[float] = []

    def collect(self, results: Iterable[BlockResult]) -> Iterator[Tensor]:
        """The deltas of each block in which a client trained, as it arrives."""
        for result in results:
            self.clients += result.clients
            self.reports |= result.reports
            self._kept |= result.kept
            self.refused |= result.refused
            self._accuracies += result.accuracies
            if result.clients:
                yield torch.from_numpy(result.deltas)

    def outcome(self, delivery: Delivery) -> Outcome:
        """The outcome of the round; clients whose update is not in `delivery` keep what they had before."""
        accuracy = sum(self._accuracies) / len(self._accuracies) if self._accuracies else None
        kept = {k: self._kept[k] for k in delivery.clients if self._kept[k]}
        sent = {"model": delivery.mean} | ({} if delivery.summed is None else {"summed": delivery.summed})
        reported = [byte_count(report) for report in delivery.reports.values()]
        mean_report = sum(reported) // max(1, len(reported))
        return Outcome(delivery, accuracy, kept, byte_count(sent) + mean_report)

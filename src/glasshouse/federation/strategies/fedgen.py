"""FedGEN (Zhu et al. 2021): averaging, with a generator that passes on what clients know of each class."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.federation.strategies.generator import Teachers
from glasshouse.federation.strategies.recalling import Recalling, last_layers
from glasshouse.federation.strategies.strategy import ServerState, Tensors
from glasshouse.federation.updates import Delivery


@dataclass(frozen=True, kw_only=True)
class FedGEN(Recalling):
    """Averages as FedAvg does; clients also learn from features that a generator synthesises for each class.

    Every client reports how many images of each class it has. The generator learns from the last layers of
    the round's clients, each weighted by its share of a label's images.
    """

    needs_updates = True
    client_reports = ("how many images of each class it has",)
    server_payload = ("a generator of features for each class, made from the clients' last layers",)

    def begin(self, server: ServerState) -> Tensors:
        counts = torch.zeros(len(server.sizes), server.classes, dtype=torch.int64)
        return {**super().begin(server), "labels": counts}

    def report(self, module: nn.Module, images: Images) -> Tensors:
        return {"labels": images.label_counts()}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        vector, memory = super().combine(server, delivery)
        return vector, {**memory, "labels": _label_counts(server, delivery)}

    def teachers(self, server: ServerState, delivery: Delivery, last: nn.Linear) -> Teachers:
        assert delivery.updates is not None
        arrived = [update.client for update in delivery.updates]
        states = (server.vector + update.delta for update in delivery.updates)
        return Teachers(*last_layers(server, states, last), _label_counts(server, delivery)[arrived])


def _label_counts(server: ServerState, delivery: Delivery) -> Tensor:
    """How many images of each class each client has reported, (clients, classes); 0 before it reports."""
    counts = server.memory["labels"].clone()
    for client, report in delivery.reports.items():
        counts[client] = report["labels"]
    return counts

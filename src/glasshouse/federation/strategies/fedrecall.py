"""FedRecall: a generator that learns from the global model alone, so that the server sees no client's model.

Fed-FSNet (Guo et al. 2022) synthesises samples from the global model alone, but clients learn little from
them. They learn more from FedGEN's features (Zhu et al. 2021), which need every client's last layer and label
counts. This strategy has the principle of the first and the generator of the second.
"""

from dataclasses import dataclass

import torch
from torch import nn

from glasshouse.federation.strategies.generator import Teachers
from glasshouse.federation.strategies.recalling import Recalling, last_layers
from glasshouse.federation.strategies.strategy import ServerState
from glasshouse.federation.updates import Delivery


@dataclass(frozen=True, kw_only=True)
class FedRecall(Recalling):
    """Averages as FedAvg does; clients also learn from features synthesised from the global model alone.

    As in FedGEN a generator makes them, but its only teacher is the last layer of the average, with the same
    weight for all classes: no client reports anything, and the server needs only the sum of the updates.
    """

    server_payload = ("a generator of features for each class, made from the global model's last layer",)

    def teachers(self, server: ServerState, delivery: Delivery, last: nn.Linear) -> Teachers:
        average = server.vector + delivery.mean
        return Teachers(*last_layers(server, [average], last), torch.ones(1, server.classes))

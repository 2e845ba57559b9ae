"""FedRecall: a generator taught by the global model alone, so that the server needs nobody's own.

Fed-FSNet (Guo et al. 2022) makes samples up from the global model alone, but these say little to clients.
FedGEN's features (Zhu et al. 2021) say more, but it asks for every client's last layer and label counts. This
is the one's principle with the other's generator.
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
    """Averages as FedAvg does; clients recall classes from features made up from the global model alone.

    As in FedGEN a generator makes them, but its only teacher is the last layer of the average, for all
    classes alike: no client tells anything, and the server needs no more than the sum of the updates.
    """

    server_payload = ("a generator of features for each class, made from the global model's last layer",)

    def teachers(self, server: ServerState, delivery: Delivery, last: nn.Linear) -> Teachers:
        average = server.vector + delivery.mean
        return Teachers(*last_layers(server, [average], last), torch.ones(1, server.classes))

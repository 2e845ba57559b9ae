"""Federated averaging with momentum at the server (Hsu et al. 2019)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.stepping import check_decay, stepped
from glasshouse.federation.strategies.strategy import ServerState, Tensors
from glasshouse.federation.updates import Delivery
from glasshouse.options import check_number


@dataclass(frozen=True, kw_only=True)
class FedAvgM(FedAvg):
    """Clients train as in FedAvg; the server keeps moving in the direction of earlier rounds.

    velocity <- `momentum` velocity + mean update; model <- model + `server_lr` velocity. With `momentum` = 0
    and `server_lr` = 1 it is FedAvg.
    """

    server_lr: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_number("fedavgm", "server_lr", self.server_lr, 0, open_low=True)
        check_decay("fedavgm", "momentum", self.momentum)

    def begin(self, server: ServerState) -> Tensors:
        return {"velocity": torch.zeros(server.layout.trainable)}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        mean = delivery.mean[: server.layout.trainable]
        velocity = self.momentum * server.memory["velocity"] + mean
        return stepped(server, delivery, self.server_lr * velocity), {"velocity": velocity}

"""Optimiser steps of the server, in place of plain averaging."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import ServerState, Tensors
from glasshouse.federation.updates import Delivery
from glasshouse.options import check_number


@dataclass(frozen=True, kw_only=True)
class FedAvgM(FedAvg):
    """Clients train as in FedAvg; the server keeps moving in the direction of earlier rounds.

    velocity <- `momentum` velocity + mean update; model <- model + `server_lr` velocity (Hsu et al. 2019).
    With `momentum` = 0 and `server_lr` = 1 it is FedAvg.
    """

    server_lr: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_number("fedavgm", "server_lr", self.server_lr, 0, open_low=True)
        check_number("fedavgm", "momentum", self.momentum, 0, 1, open_high=True)

    def begin(self, server: ServerState) -> Tensors:
        return {"velocity": torch.zeros(server.layout.trainable)}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        mean = delivery.mean[: server.layout.trainable]
        velocity = self.momentum * server.memory["velocity"] + mean
        return stepped(server, delivery, self.server_lr * velocity), {"velocity": velocity}


@dataclass(frozen=True, kw_only=True)
class FedAdam(FedAvg):
    """Clients train as in FedAvg; the server takes their mean update for a gradient and steps with Adam.

    With the mean update d: m <- `beta1` m + (1 - `beta1`) d; v <- `beta2` v + (1 - `beta2`) d^2;
    model <- model + `server_lr` m / (sqrt(v) + `tau`). As published (Reddi et al. 2021, Algorithm 2), nothing
    corrects the bias of the first rounds, and v starts at no less than `tau`^2: here at that, and m at 0.
    """

    server_lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check_number("fedadam", "server_lr", self.server_lr, 0, open_low=True)
        check_number("fedadam", "beta1", self.beta1, 0, 1, open_high=True)
        check_number("fedadam", "beta2", self.beta2, 0, 1, open_high=True)
        check_number("fedadam", "tau", self.tau, 0, open_low=True)

    def begin(self, server: ServerState) -> Tensors:
        trainable = server.layout.trainable
        return {"first": torch.zeros(trainable), "second": torch.full((trainable,), self.tau**2)}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        mean = delivery.mean[: server.layout.trainable]
        first = self.beta1 * server.memory["first"] + (1 - self.beta1) * mean
        second = self.beta2 * server.memory["second"] + (1 - self.beta2) * mean.square()
        change = self.server_lr * first / (second.sqrt() + self.tau)
        return stepped(server, delivery, change), {"first": first, "second": second}


def stepped(server: ServerState, delivery: Delivery, change: Tensor) -> Tensor:
    """The next global model, shape (P,): its trainable part moves by `change`, shape (trainable,).

    Buffers are statistics of the data, not weights: they are averaged, as in FedAvg.
    """
    trainable = server.layout.trainable
    return server.vector + torch.cat([change, delivery.mean[trainable:]])

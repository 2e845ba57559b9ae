"""Federated averaging with a proximal term at the clients (Li et al. 2020)."""

from dataclasses import dataclass

import torch
from torch import nn

from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import LocalTask, Reply
from glasshouse.learning.fit import Steering
from glasshouse.options import check_number


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """Averages as FedAvg does; clients stay near the model sent.

    Their loss gains `mu` / 2 times the squared distance to it, each gradient `mu` (w - w_sent). With `mu` = 0
    it is FedAvg.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        check_number("fedprox", "mu", self.mu, 0)

    def train(self, task: LocalTask) -> Reply:
        return Reply(task.fit(steer=pull_back(task.module, self.mu) if self.mu else None))


def pull_back(module: nn.Module, mu: float) -> Steering:
    """Adds `mu` times the distance from the weights that `module` has now to every gradient."""
    anchors = [parameter.detach().clone() for parameter in module.parameters()]

    @torch.no_grad()
    def steer(parameters: list[nn.Parameter]) -> None:
        moved = [(own, sent, own.grad) for own, sent in zip(parameters, anchors) if own.grad is not None]
        weights, sent, gradients = map(list, zip(*moved))
        torch._foreach_add_(gradients, torch._foreach_sub(weights, sent), alpha=mu)

    return steer

"""Federated averaging with a proximal term at the clients (Li et al. 2020)."""

from dataclasses import dataclass

import torch
from torch import nn

from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import LocalTask, Reply
from glasshouse.learning.step import PLAIN, Step
from glasshouse.models.freezing import exchanged
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
        return Reply(task.fit(PullBack(task.module, self.mu) if self.mu else PLAIN))


class PullBack(Step):
    """Adds to every gradient `mu` times the distance from the weights that `module` has at the start."""

    def __init__(self, module: nn.Module, mu: float) -> None:
        self._mu = mu
        self._sent = [parameter.detach().clone() for parameter in exchanged(module).values()]

    @torch.no_grad()
    def steer(self, parameters: list[nn.Parameter], rng: torch.Generator) -> None:
        moved = [(one, sent, one.grad) for one, sent in zip(parameters, self._sent) if one.grad is not None]
        weights, sent, gradients = map(list, zip(*moved))
        torch._foreach_add_(gradients, torch._foreach_sub(weights, sent), alpha=self._mu)

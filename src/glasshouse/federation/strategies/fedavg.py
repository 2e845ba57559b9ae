"""Federated averaging and its one-step form (McMahan et al. 2017)."""

from torch import Tensor

from glasshouse.federation.strategies.strategy import ServerState, Strategy, Tensors
from glasshouse.federation.updates import Delivery
from glasshouse.learning.recipe import Recipe


class FedAvg(Strategy):
    """Clients train for some epochs; the server averages their models, weighted by N_k / N."""

    def choose(self, server: ServerState, count: int) -> list[int]:
        drawn = server.rng("choose").choice(len(server.sizes), count, replace=False)
        return sorted(int(client) for client in drawn)

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        return server.vector + delivery.mean, server.memory


class FedSGD(FedAvg):
    """Clients take one gradient step on all their data; the server averages, as if it had taken the step."""

    def local(self, recipe: Recipe) -> Recipe:
        return recipe.plain()

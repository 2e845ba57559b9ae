"""Federated averaging and its one-step form (McMahan et al. 2017)."""

import dataclasses

import numpy as np
from torch import Tensor

from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.federation.updates import Delivery
from glasshouse.learning.recipe import Recipe


class FedAvg(Strategy):
    """Clients train for some epochs; the server averages their models, weighted by N_k / N."""

    def choose(self, round_number: int, clients: int, count: int, rng: np.random.Generator) -> list[int]:
        return sorted(int(client) for client in rng.choice(clients, count, replace=False))

    def combine(self, sent: Tensor, delivery: Delivery) -> Tensor:
        return sent + delivery.mean


class FedSGD(FedAvg):
    """Clients take one gradient step on all their data; the server averages, as if it had taken the step."""

    def local(self, recipe: Recipe) -> Recipe:
        return dataclasses.replace(recipe, epochs=1, batch_size=0, optimiser="sgd", momentum=0.0)

"""Federated averaging and its one-step form (McMahan et al. 2017)."""

from dataclasses import dataclass

from torch import Tensor

from glasshouse.errors import BadInput
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


@dataclass(frozen=True, kw_only=True)
class FedSGD(FedAvg):
    """Clients take one gradient step on all their data; the server averages, as if it had taken the step.

    They send how their weights changed, in which the rounding of the weights hides small gradients. With
    `gradients` they send the gradient itself, times the negative learning rate.
    """

    gradients: bool = False

    @property
    def sends_gradients(self) -> bool:
        return self.gradients

    def local(self, recipe: Recipe) -> Recipe:
        changed = (
            "weight_decay" if recipe.weight_decay else "clip_grad_norm" if recipe.clip_grad_norm else None
        )
        if self.gradients and changed:
            raise BadInput(
                f"training.{changed} = {getattr(recipe, changed):g} acts after the gradient that "
                "fedsgd(gradients=True) sends; leave one of them out"
            )
        return recipe.plain()

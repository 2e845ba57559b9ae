"""SCAFFOLD: control variates against client drift (Karimireddy et al. 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.stepping import stepped
from glasshouse.federation.strategies.strategy import LocalTask, Reply, ServerState, Tensors
from glasshouse.federation.updates import Delivery
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import Step
from glasshouse.models.freezing import exchanged
from glasshouse.options import check_number


@dataclass(frozen=True, kw_only=True)
class SCAFFOLD(FedAvg):
    """Clients correct each gradient by how their mean gradient differs from that of all clients.

    A client adds c - c_k to each of its gradients. Its mean gradient then follows from its update, and c_k
    becomes c_k - c + (x - y) / (sum of its learning rates), the paper's option II, with the defended y. The
    server moves by `server_lr` times the mean update and keeps c = sum_k N_k/N c_k over all clients; both
    start at 0. Changes of c_k are needed as a sum only and travel with the update. Only in plain SGD does an
    update determine the mean gradient, so momentum and Adam are refused.
    """

    server_lr: float = 1.0

    sums_more = True
    server_payload = (
        "the control variate: the mean gradient of all clients, each from when it was last asked",
    )

    def __post_init__(self) -> None:
        check_number("scaffold", "server_lr", self.server_lr, 0, open_low=True)

    def local(self, recipe: Recipe) -> Recipe:
        preventing = {"momentum": recipe.momentum, "clip_grad_norm": recipe.clip_grad_norm}
        used = [f"{key} = {value}" for key, value in preventing.items() if value]
        if recipe.optimiser != "sgd":
            used.insert(0, f"optimiser = {recipe.optimiser!r}")
        if used:
            raise BadInput(
                f"scaffold computes a client's mean gradient from its update, which {used[0]} prevents; "
                "set optimiser = 'sgd', momentum = 0 and clip_grad_norm = 0, or take another strategy"
            )
        return recipe

    def begin(self, server: ServerState) -> Tensors:
        return {"variate": torch.zeros(server.layout.trainable)}

    def brief(self, server: ServerState) -> Tensors:
        return server.memory

    def train(self, task: LocalTask) -> Reply:
        trainable = task.layout.trainable
        nothing = torch.zeros(trainable)
        common, before = (tensors.get("variate", nothing) for tensors in (task.payload, task.kept))
        delta = task.fit(Correction(task.module, common - before))
        variate = before - common - delta[:trainable] / task.recipe.summed_rate(len(task.images))
        return Reply(delta, summed=variate - before, kept={"variate": variate})

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        assert delivery.summed is not None
        share = delivery.samples / sum(server.sizes)
        variate = server.memory["variate"] + share * delivery.summed
        mean = delivery.mean[: server.layout.trainable]
        return stepped(server, delivery, self.server_lr * mean), {"variate": variate}


class Correction(Step):
    """Adds `correction`, shape (trainable,), to every gradient of `module`."""

    def __init__(self, module: nn.Module, correction: Tensor) -> None:
        parameters = list(exchanged(module).values())
        pieces = correction.split([parameter.numel() for parameter in parameters])
        # In the memory order of the gradients, where adding is fastest.
        self._pieces = [
            torch.empty_like(one).copy_(piece.view(one.shape)) for one, piece in zip(parameters, pieces)
        ]

    @torch.no_grad()
    def steer(self, parameters: list[nn.Parameter], rng: torch.Generator) -> None:
        trained = [(one.grad, piece) for one, piece in zip(parameters, self._pieces) if one.grad is not None]
        gradients, pieces = map(list, zip(*trained))
        torch._foreach_add_(gradients, pieces)

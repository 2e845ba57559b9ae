"""Active federated learning: clients with a high loss train more often (Goetz et al. 2019)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import ServerState, Tensors
from glasshouse.federation.updates import Delivery
from glasshouse.learning.evaluate import predict
from glasshouse.options import check_number


@dataclass(frozen=True, kw_only=True)
class AFL(FedAvg):
    """Averages as FedAvg does, but prefers clients on whose images the model is still bad.

    A client that trains reports its valuation: its summed loss under the model sent, over the root of its
    sample count. The share `alpha1` of the clients with the lowest valuations v gets the probability 0, the
    others one proportional to exp(`alpha2` v). All but a share `alpha3` of a round's clients are drawn with
    these probabilities, the rest uniformly from the other clients.

    The paper leaves open the valuation of a client that never trained: here it is that of a uniform guess,
    v = sqrt(n_k) ln(classes). The first round is drawn uniformly. Where all clients take part it is FedAvg.
    """

    alpha1: float = 0.75
    alpha2: float = 0.01
    alpha3: float = 0.1

    client_reports = ("its summed loss under the model sent, over the root of its sample count",)

    def __post_init__(self) -> None:
        check_number("afl", "alpha1", self.alpha1, 0, 1)
        check_number("afl", "alpha2", self.alpha2, 0)
        check_number("afl", "alpha3", self.alpha3, 0, 1)

    def begin(self, server: ServerState) -> Tensors:
        return {"valuations": torch.full((len(server.sizes),), math.nan, dtype=torch.float64)}

    def choose(self, server: ServerState, count: int) -> list[int]:
        reported = server.memory["valuations"].numpy()
        if np.isnan(reported).all():
            return super().choose(server, count)
        uniform_guess = np.sqrt(server.sizes) * math.log(server.classes)
        rng = server.rng("choose")
        # Clients that never trained often tie; their numbers must not decide which of them come first.
        order = rng.permutation(len(reported))
        valuations = np.where(np.isnan(reported), uniform_guess, reported)[order]
        likely = probabilities(valuations, count, alpha1=self.alpha1, alpha2=self.alpha2)
        by_value = rng.choice(order, round((1 - self.alpha3) * count), replace=False, p=likely)
        rest = np.setdiff1d(order, by_value)
        uniformly = rng.choice(rest, count - len(by_value), replace=False)
        return sorted(int(client) for client in (*by_value, *uniformly))

    def report(self, module: nn.Module, images: Images) -> Tensors:
        losses = F.cross_entropy(predict(module, images.x), images.y, reduction="sum")
        return {"valuation": losses / math.sqrt(len(images))}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        vector, memory = super().combine(server, delivery)
        valuations = memory["valuations"].clone()
        for client, report in delivery.reports.items():
            valuations[client] = report["valuation"]
        return vector, {"valuations": valuations}


def probabilities(valuations: np.ndarray, count: int, *, alpha1: float, alpha2: float) -> np.ndarray:
    """The probability of each client in the first draw, shape (K,); at least `count` of them are above 0.

    >>> probabilities(np.array([1.0, 3.0, 2.0]), 1, alpha1=0.4, alpha2=np.log(2)).round(3).tolist()
    [0.0, 0.667, 0.333]
    """
    excluded = min(round(alpha1 * len(valuations)), len(valuations) - count)
    exponents = alpha2 * (valuations - valuations.max())
    weights = np.exp(np.maximum(exponents, -500))  # above 0, or they could not be drawn
    weights[np.argsort(valuations, kind="stable")[:excluded]] = 0
    drawn: np.ndarray = weights / weights.sum()
    return drawn

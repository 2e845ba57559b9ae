"""Optimiser steps of the server, in place of plain averaging."""

import torch
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.federation.strategies.strategy import ServerState
from glasshouse.federation.updates import Delivery
from glasshouse.options import check_number


def stepped(server: ServerState, delivery: Delivery, change: Tensor) -> Tensor:
    """The next global model, shape (P,): its trainable part moves by `change`, shape (trainable,).

    Buffers are statistics of the data, not weights: they are averaged, as in FedAvg.
    """
    trainable = server.layout.trainable
    return server.vector + torch.cat([change, delivery.mean[trainable:]])


def check_decay(strategy: str, option: str, value: float) -> None:
    """Refuse a decay rate outside [0, 1)."""
    check_number(strategy, option, value, 0, 1)
    if value == 1:
        raise BadInput(f"{strategy} {option} = {value!r} never forgets a round; it must be below 1")

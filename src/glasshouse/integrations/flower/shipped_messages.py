"""The messages by which Flower's mods and strategies are asked what they make of an update."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout

IDENTITY = ("_task_id", "_run_id", "_node_id")


def instruction(vector: Tensor, layout: Layout, **config: float) -> Any:
    """The message that sends a model, shape (P,), to a client."""
    own = flower()
    content = own.RecordDict({"arrays": _arrays(vector, layout), "config": own.ConfigRecord(config)})
    return own.Message(content, dst_node_id=1, message_type="train")


def reply(sent: Any, vector: Tensor, layout: Layout, samples: int) -> Any:
    """A client's answer: its model, shape (P,), trained on so many samples."""
    own = flower()
    metrics = own.MetricRecord({"num-examples": samples})
    content = own.RecordDict({"arrays": _arrays(vector, layout), "metrics": metrics})
    return own.Message(content, reply_to=sent)


def vector_of(arrays: Any, layout: Layout) -> Tensor:
    """The model in Flower's arrays, shape (P,)."""
    pieces = [torch.from_numpy(np.array(arrays[name].numpy())).reshape(-1) for name in layout.names]
    return torch.cat(pieces)


def _arrays(vector: Tensor, layout: Layout) -> Any:
    own = flower()
    named = {name: tensor.detach().numpy().copy() for name, tensor in layout.named(vector).items()}
    return own.ArrayRecord({name: own.Array(array) for name, array in named.items()})


@contextmanager
def quiet() -> Iterator[None]:
    """Give the process the identity that Flower's messages carry and keep its log still, for a while."""
    identity = flower().TaskIdentity
    identifiers = {name: getattr(identity, name) for name in IDENTITY}
    logger = logging.getLogger("flwr")
    level = logger.level
    identity.task_id = identity.run_id = identity.node_id = 1
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, value in identifiers.items():
            setattr(identity, name, value)
        logger.setLevel(level)


class _Flower:
    """The parts of the package `flwr` that are used here."""

    def __init__(self) -> None:
        from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
        from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
        from flwr.serverapp.strategy import (
            DifferentialPrivacyClientSideFixedClipping,
            DifferentialPrivacyServerSideAdaptiveClipping,
            DifferentialPrivacyServerSideFixedClipping,
            FedAvg,
        )
        from flwr.supercore.privacy_accounting import (
            GaussianPrivacyEvent,
            NeighboringRelation,
            PrivacyConfig,
            SamplingMethod,
        )
        from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant
        from flwr.supercore.task_identity import TaskIdentity

        self.Array, self.ArrayRecord, self.ConfigRecord = Array, ArrayRecord, ConfigRecord
        self.Message, self.MetricRecord, self.RecordDict = Message, MetricRecord, RecordDict
        self._context = Context
        self.LocalDpMod, self.fixedclipping_mod, self.FedAvg = LocalDpMod, fixedclipping_mod, FedAvg
        self.DifferentialPrivacyServerSideFixedClipping = DifferentialPrivacyServerSideFixedClipping
        self.DifferentialPrivacyClientSideFixedClipping = DifferentialPrivacyClientSideFixedClipping
        self.DifferentialPrivacyServerSideAdaptiveClipping = DifferentialPrivacyServerSideAdaptiveClipping
        self.GaussianPrivacyEvent, self.PrivacyConfig = GaussianPrivacyEvent, PrivacyConfig
        self.NeighboringRelation, self.SamplingMethod = NeighboringRelation, SamplingMethod
        self.RdpAccountant, self.TaskIdentity = RdpAccountant, TaskIdentity

    def context(self) -> Any:
        """What a client app keeps between messages: nothing."""
        return self._context(run_id=1, node_id=1, node_config={}, state=self.RecordDict(), run_config={})


def flower() -> Any:
    """The package `flwr`, or one line that says how to get it."""
    try:
        return _Flower()
    except ImportError as error:
        raise BadInput(
            f"Flower's defences need Flower ({error}); install it with: pip install 'glasshouse[flower]'"
        ) from None

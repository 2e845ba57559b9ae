"""Small federations whose server learns from its clients' models, for the tests of FedDF and FedGEN."""

import dataclasses

import numpy as np
import pytest
import torch
from conftest import CLASSES, make_images, make_model, make_split

from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.strategies.feddf import FedDF
from glasshouse.federation.strategies.recalling import FedGEN
from glasshouse.federation.updates import Update
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1)
DISTILLING = FedDF(steps=12, batch_size=16)
GENERATING = FedGEN(noise=6, hidden=12, generator_steps=5, batch_size=8)
UNEQUAL = (30, 20, 10, 7, 5, 4, 3, 9, 8, 6)
BOTH = pytest.mark.parametrize("strategy", [DISTILLING, GENERATING], ids=["feddf", "fedgen"])


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_delivery(server, sizes=(30, 20, 10), scale=0.3, reports=None):
    updates = [
        Update(client, size, scale * normal(server.layout.size, seed=client).abs())
        for client, size in enumerate(sizes)
    ]
    return dataclasses.replace(Plain().deliver(updates, seed=0), reports=reports or {})


def make_specialists(server):
    """What clients send that have seen two classes each: apart they know all, their average little."""
    images = make_images(80)
    updates = []
    for client in range(CLASSES):
        held = images[(images.y - client) % CLASSES < 2]
        trained = fit(make_model(), server.vector, held, Recipe(epochs=2, batch_size=8, lr=0.1), client)
        updates.append(Update(client, len(held), trained - server.vector))
    return Plain().deliver(updates, seed=0)


def run(strategy, engine, *, rounds=3, channel=None, record=None, split=None, fraction=1.0, model=make_model):
    federation = Federation(
        model(), split or make_split(), RECIPE, engine=engine, strategy=strategy, channel=channel, seed=2
    )
    return federation.run(read_vector(model()), Plan(rounds=rounds, fraction=fraction), record=record)

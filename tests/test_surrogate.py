"""The autoencoder behind Scale-MIA: what it says of itself, and that one serves many rounds."""

import dataclasses

import pytest
import torch
from conftest import CLASSES, SHAPE, make_images
from torch import nn

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted import latent_attack
from glasshouse.attacks.crafted.cut import find_cut
from glasshouse.attacks.crafted.scale_mia_coded import CodedScaleMIA, PeeledScaleMIA
from glasshouse.attacks.crafted.surrogate import Schooling, make_surrogate, restored
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.updates import Update
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe

AUXILIARY = make_images(200, seed=7)
SCHOOLING = Schooling(steps=6, batch_size=16, lr=3e-3)


def rng():
    return torch.Generator().manual_seed(0)


def protocol_of(recipe):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 48),
        nn.ReLU(),
        nn.Linear(48, CLASSES),
    )
    return Protocol(network, Layout.of(network), recipe, SHAPE, CLASSES, CHANNELS.make("ideal"))


def serving(protocol, seed):
    """A blind server with two clients that hold other images for each `seed`, and what it sends them."""
    held, sent = [make_images(12, seed=seed), make_images(8, seed=seed + 100)], []

    def exchange(vector, clients, apart=None):
        sent.append(vector)
        deltas = [
            fit(protocol.architecture, vector, held[k], protocol.recipe, seed=k) - vector for k in clients
        ]
        return protocol.channel.deliver([Update(k, len(held[k]), deltas[k]) for k in clients], seed=0)

    return BlindServerAccess(protocol, read_vector(protocol.architecture), (12, 8), exchange), sent


@pytest.fixture(scope="module")
def surrogate():
    protocol = protocol_of(Recipe())
    return make_surrogate(protocol, find_cut(protocol), AUXILIARY.x, SCHOOLING, rng())


def test_a_surrogate_says_how_it_was_trained(surrogate):
    assert surrogate.described == "an autoencoder of them, trained for 6 steps of 16"
    longer = Schooling(steps=12000, batch_size=64, lr=1e-3, half=True)
    described = dataclasses.replace(surrogate, schooling=longer).described
    assert described == "an autoencoder of them, trained for 12,000 steps of 64, in bfloat16"
    assert described in Knowledge(surrogate=dataclasses.replace(surrogate, schooling=longer)).described()


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_a_surrogate_trains_for_any_number_of_steps(steps):
    protocol = protocol_of(Recipe())
    schooling, taken = Schooling(steps=steps, batch_size=4, lr=1e-3), []
    surrogate = make_surrogate(
        protocol, find_cut(protocol), AUXILIARY.x[:8], schooling, rng(), advance=lambda: taken.append(1)
    )
    assert len(taken) == steps
    assert surrogate.vector.isfinite().all()
    assert not torch.equal(surrogate.vector, read_vector(protocol.architecture))


def test_a_surrogate_survives_the_way_through_its_tensors(surrogate):
    protocol = protocol_of(Recipe())
    again = restored(protocol, surrogate.cut, surrogate.tensors(), SCHOOLING, surrogate.seconds)
    assert (again.described, again.seconds) == (surrogate.described, surrogate.seconds)
    assert torch.equal(again.vector, surrogate.vector)
    assert torch.equal(again.decode(surrogate.latents[:5]), surrogate.decode(surrogate.latents[:5]))


@pytest.mark.parametrize("attack", [CodedScaleMIA(), PeeledScaleMIA(rounds=2)])
@pytest.mark.parametrize("recipe", [Recipe(epochs=1, batch_size=0, lr=0.1), Recipe(epochs=2, lr=0.05)])
def test_a_granted_surrogate_serves_round_after_round_with_the_same_models(
    surrogate, attack, recipe, monkeypatch
):
    monkeypatch.setattr(latent_attack, "kept_surrogate", None)  # nothing is trained
    protocol, knowledge = protocol_of(recipe), Knowledge(auxiliary=AUXILIARY, surrogate=surrogate)
    runs = []
    for seed in range(2):
        access, sent = serving(protocol, seed)
        runs.append((attack.run(access, knowledge, rng()), sent))
    (first, sent), (second, sent_again) = runs
    assert len(sent) == attack.rounds
    assert all(torch.equal(one, other) for one, other in zip(sent, sent_again, strict=True))
    assert not torch.equal(first.x, second.x)
    assert min(first.offline, second.offline) > surrogate.seconds


def test_an_attack_without_a_surrogate_trains_the_one_that_its_options_describe(monkeypatch):
    schoolings = []

    def make(protocol, cut, x, schooling):
        schoolings.append(schooling)
        return make_surrogate(protocol, cut, x, dataclasses.replace(schooling, steps=6), rng())

    monkeypatch.setattr(latent_attack, "kept_surrogate", make)
    access, _ = serving(protocol_of(Recipe(epochs=1, batch_size=0, lr=0.1)), 0)
    CodedScaleMIA(steps=70, batch_size=9, lr=0.01).run(access, Knowledge(auxiliary=AUXILIARY), rng())
    assert schoolings == [Schooling(steps=70, batch_size=9, lr=0.01)]

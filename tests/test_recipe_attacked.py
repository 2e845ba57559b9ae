"""What attacks make of clients that train by a schedule, cut gradients or augment images."""

import dataclasses

import numpy as np
import pytest
import torch
from cases import access_to, finished, waiting
from conftest import make_images, make_plain_model, make_split
from sent_updates import seen_updates
from torch import nn

from glasshouse.access import ServerAccess, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.saturated_head import SaturatedHead
from glasshouse.attacks.inversion.explaining import Explanation
from glasshouse.attacks.inversion.updates import attacked_updates
from glasshouse.auditing.examine import examine
from glasshouse.federation.strategies.fedavg import FedSGD
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.labels import overlap

RNG = torch.Generator()
FALLING = Recipe(batch_size=0, lr=0.2, schedule="cosine", warmup=1, rounds=8)
CUT = Recipe(batch_size=0, lr=0.1, clip_grad_norm=0.01)


def test_labels_are_counted_by_the_rate_of_their_round(engine):
    """A head of zeros makes the counts exact, where the rate is right: here a third of the largest."""
    model = make_plain_model()
    with torch.no_grad():
        model[-1].weight.zero_()
        model[-1].bias.zero_()
    recipe = Recipe(lr=0.3, schedule="cosine", warmup=2, rounds=8)
    case = finished(engine, model=model, split=make_split((37, 22, 11)), recipe=recipe, strategy=FedSGD())
    evidence = ATTACKS.make("label-counts").run(access_to(case, UpdateAccess), Knowledge(), RNG)
    expected = [tuple(row) for row in case.truth.label_counts]
    assert [tuple(counted.counts) for counted in evidence.counted] == expected
    at_the_top = dataclasses.replace(case.protocol, recipe=case.protocol.recipe.in_round(None))
    misled = dataclasses.replace(case, protocol=at_the_top)
    evidence = ATTACKS.make("label-counts").run(access_to(misled, UpdateAccess), Knowledge(), RNG)
    assert [tuple(counted.counts) for counted in evidence.counted] != expected


@pytest.mark.parametrize("recipe", [
    FALLING,
    dataclasses.replace(FALLING, schedule="step", step_size=2, gamma=0.5, epochs=3),
    dataclasses.replace(CUT, epochs=3, momentum=0.5),
    dataclasses.replace(CUT, schedule="cosine", epochs=3),
])  # fmt: skip
def test_the_true_images_explain_an_update_of_any_round(engine, recipe):
    """The gradient that an attack reads is that of the client's images, in length as in direction."""
    case = finished(engine, split=make_split((4, 4)), recipe=recipe, rounds=6)
    access = access_to(dataclasses.replace(case, rounds=case.rounds[-1:]), UpdateAccess)
    first = attacked_updates(access, 2)[0]
    images = case.truth.pool[case.truth.clients[first.clients[0]]]
    explanation = Explanation(first, images.y, len(images), simulate=16)
    assert explanation.mismatch(images.x, images.y) < 1e-4
    seen = torch.cat([part.flatten() for part in explanation._matcher.seen])
    copies = images.x.expand(explanation._target.copies, *images.x.shape)
    made = torch.cat([part.flatten() for part in explanation._matcher(copies, images.y)])
    torch.testing.assert_close(made, seen, rtol=1e-2, atol=1e-2 * float(seen.abs().max()))


def test_a_lone_image_comes_back_exactly_though_its_gradient_was_cut():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 4))
    images = make_images(3)
    access = seen_updates(network, [images[[place]] for place in range(3)], CUT)
    attack = ATTACKS.make("linear-leak")
    found = attack.run(access, Knowledge(), RNG)
    assert (found.x - images.x).abs().max() < 1e-2
    assert "gradients were cut to the length 0.01" in found.note


def test_what_comes_back_of_augmented_images_is_no_proof_of_the_clients_own():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 4))
    images = make_images(3)
    recipes = [Recipe(batch_size=0, augment="crop(pad=2)"), Recipe(batch_size=0)]
    augmented, plain = (
        ATTACKS.make("linear-leak").run(
            seen_updates(network, [images[[place]] for place in range(3)], recipe), Knowledge(), RNG
        )
        for recipe in recipes
    )
    assert all(part.proven for part in plain.parts)
    assert not any(part.proven for part in augmented.parts)
    assert "(crop(pad=2))" in augmented.note
    assert (plain.x - images.x).abs().max() < 1e-3
    assert (augmented.x - images.x).abs().max() > 0.1


def test_a_client_that_computes_in_bfloat16_is_inverted_to_that_precision():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 4))
    images = make_images(3)
    recipe = Recipe(batch_size=0, lr=0.1, precision="bfloat16")
    access = seen_updates(network, [images[[place]] for place in range(3)], recipe)
    found = ATTACKS.make("linear-leak").run(access, Knowledge(), RNG)
    assert (found.x - images.x).abs().max() < 0.05
    assert "computed in bfloat16" in found.note


LENGTHS = ("label-counts", "fishing", "eluding", "scale-mia-coded", "scale-mia-peeled", "r-gap")


@pytest.mark.parametrize("name", LENGTHS)
def test_attacks_that_read_lengths_refuse_gradients_that_were_cut(engine, name):
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )
    case = finished(engine, model=model, split=make_split((1, 1)), recipe=CUT)
    attack = ATTACKS.make(name)
    assert examine(case, name, attack.needs[0]).reason == attack.cannot(case.protocol, samples=1)
    assert "clip_grad_norm" in attack.cannot(case.protocol, samples=1)
    uncut = dataclasses.replace(case.protocol, recipe=dataclasses.replace(CUT, clip_grad_norm=0.0))
    assert "clip_grad_norm" not in (attack.cannot(uncut, samples=1) or "")


@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_a_saturated_head_counts_labels_whose_gradient_is_cut(engine, clip):
    recipe = Recipe(batch_size=0, lr=0.1, clip_grad_norm=clip)
    case = waiting(engine, split=make_split((37, 22, 11)), recipe=recipe)
    evidence = SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), RNG)
    shares = [overlap(counted.counts, own) for counted, own in zip(evidence.counted, case.truth.label_counts)]
    assert np.mean(shares) > 0.95


@pytest.mark.parametrize("recipe", [
    Recipe(batch_size=0, lr=0.1, schedule="cosine", warmup=2, rounds=10),
    Recipe(epochs=3, batch_size=0, lr=0.05, schedule="cosine", warmup=1),
])  # fmt: skip
def test_a_saturated_head_counts_labels_whatever_the_schedule(engine, recipe):
    case = waiting(engine, split=make_split((37, 22, 11)), recipe=recipe)
    evidence = SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), RNG)
    shares = [overlap(counted.counts, own) for counted, own in zip(evidence.counted, case.truth.label_counts)]
    assert np.mean(shares) > 0.95

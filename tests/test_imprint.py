import dataclasses
from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import ONE_STEP, access_to, waiting
from conftest import CLASSES, make_model, make_plain_model
from torch import nn

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.imprint import craft
from glasshouse.attacks.crafted.leakage import Bins, bin_sums, decode, occupied, quotients, thresholds
from glasshouse.attacks.crafted.loki import Loki, share_slots
from glasshouse.attacks.crafted.robbing import RobbingTheFed, within_bins
from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe

RNG = torch.Generator()


def make_pictures(brightness, *, channels=1, seed=0):
    """Noise pictures of 8x8 pixels with exactly this mean brightness each."""
    rng = torch.Generator().manual_seed(seed)
    brightness = torch.as_tensor(brightness, dtype=torch.float32)
    x = torch.rand(len(brightness), channels, 8, 8, generator=rng) - 0.5
    x = x - x.mean((1, 2, 3), keepdim=True)
    x = (0.3 * x + brightness[:, None, None, None]).clamp(0, 1)
    return Images(x, torch.arange(len(x)) % CLASSES, CLASSES)


def make_auxiliary(channels=1, count=400):
    return make_pictures(torch.linspace(0.25, 0.75, count), channels=channels, seed=9)


def make_colour_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES)
    )


def double_server(model, batches, recipe=ONE_STEP):
    """A blind server whose clients are plain autograd in double precision, one for each of `batches`."""
    sizes = tuple(len(batch) for batch in batches)
    shape = batches[0].shape

    def serving(network):
        network = deepcopy(network).double().train()
        protocol = Protocol(network, Layout.of(network), recipe, shape, CLASSES)

        def exchange(vector, clients, apart=None):
            total = torch.zeros_like(vector)
            for client in clients:
                write_vector(network, (apart or {}).get(client, vector))
                before = read_vector(network)
                for _ in range(recipe.epochs):
                    network.zero_grad()
                    F.cross_entropy(network(batches[client].x.double()), batches[client].y).backward()
                    with torch.no_grad():
                        for p in network.parameters():
                            if p.grad is not None:
                                p -= recipe.lr * (p.grad + recipe.weight_decay * p)
                total += (read_vector(network) - before) * sizes[client] / sum(sizes)
            return Delivery(total, sum(sizes), tuple(clients))

        return BlindServerAccess(protocol, read_vector(network), sizes, exchange)

    protocol = Protocol(model, Layout.of(model), recipe, shape, CLASSES)
    return BlindServerAccess(protocol, read_vector(model), sizes, None, serving)


def federated(engine, batches, auxiliary, channel="ideal", recipe=ONE_STEP, model=None):
    """The access of a blind server that may change the network, to clients with `batches`."""
    everything = [*batches, auxiliary, make_pictures([0.5] * 8, channels=auxiliary.shape[0], seed=5)]
    pool = Images(torch.cat([p.x for p in everything]), torch.cat([p.y for p in everything]), CLASSES)
    parts = np.split(np.arange(len(pool)), np.cumsum([len(part) for part in everything])[:-1])
    split = Split(pool, tuple(parts[: len(batches)]), parts[-1][:4], parts[-2], parts[-1][4:])
    case = waiting(engine, model=model, split=split, recipe=recipe, channel=CHANNELS.make(channel))
    return access_to(case, BlindServerAccess, changes_network=True)


def psnr_of_each(batches, found):
    """For each true image the PSNR of the nearest one found."""
    truth = torch.cat([batch.x for batch in batches]).flatten(1).double()
    errors = ((truth[:, None] - found.flatten(1).double()) ** 2).mean(2).min(1).values
    return -10 * torch.log10(errors.clamp(min=1e-16))


def lone(batches, bins, auxiliary):
    """Which samples have a bin to themselves."""
    cut = thresholds(auxiliary.x.double().flatten(1).mean(1), bins)
    place = torch.bucketize(torch.cat([b.x for b in batches]).double().flatten(1).mean(1), cut)
    return torch.bincount(place)[place] == 1


def spread(count, start=0.27, end=0.73, seed=0):
    return make_pictures(torch.linspace(start, end, count), seed=seed)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_linear_leakage_recovers_one_sample_per_bin(dtype, tolerance):
    torch.manual_seed(0)
    x = spread(10).x.flatten(1).to(dtype)
    cut = torch.linspace(0.25, 0.75, 33, dtype=dtype)
    first, second = nn.Linear(64, 33).to(dtype), nn.Linear(33, CLASSES).to(dtype)
    with torch.no_grad():
        first.weight.fill_(1 / 64)
        first.bias.copy_(-cut)
        second.weight.copy_(second.weight[:, :1].expand(-1, 33))
    F.cross_entropy(second(first(x).relu()), torch.arange(10) % CLASSES).backward()
    sums, weights = bin_sums(first.weight.grad, first.bias.grad)
    places = torch.bucketize(x.mean(1), cut) - 1
    assert len(set(places.tolist())) == 10
    torch.testing.assert_close(quotients(sums, weights)[places], x, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["robbing-the-fed(bins=200)", "mandrake(bins=200, slots=2)"])
def test_lone_samples_come_back_above_80_db_in_double_precision(name):
    batches, auxiliary = [spread(16), spread(15, 0.28, 0.72, seed=1)], make_auxiliary()
    found = ATTACKS.make(name).run(
        double_server(make_plain_model(), batches), Knowledge(auxiliary=auxiliary), RNG
    )
    alone = lone(batches, 200, auxiliary)
    assert alone.sum() > 20
    psnr = psnr_of_each(batches, found.x)[alone]
    assert psnr.mean() > 80
    assert psnr.min() > 60
    assert len(found.x) <= 31
    assert found.x.min() >= 0
    assert found.x.max() <= 1


@pytest.mark.parametrize("channel", ["ideal", "secure"])
@pytest.mark.parametrize("name", ["robbing-the-fed(bins=200)", "mandrake(bins=200, slots=3)"])
def test_lone_samples_come_back_through_a_channel_that_shows_only_the_sum(engine, channel, name):
    batches = [spread(6), spread(7, 0.3, 0.7, seed=1), spread(4, 0.31, 0.69, seed=2)]
    auxiliary = make_auxiliary()
    access = federated(engine, batches, auxiliary, channel, model=make_model())
    found = ATTACKS.make(name).run(access, Knowledge(auxiliary=auxiliary), RNG)
    psnr = psnr_of_each(batches, found.x)[lone(batches, 200, auxiliary)]
    assert psnr.min() > 40
    assert psnr.mean() > 60
    assert found.parts[0].clients == (0, 1, 2)
    assert found.offline > 0
    assert found.online > 0


@pytest.mark.parametrize("name", ["robbing-the-fed(bins=200)", "mandrake(bins=200, slots=2)"])
def test_gradients_that_clients_cut_still_hold_their_samples(engine, name):
    batches, auxiliary = [spread(9), spread(7, 0.3, 0.7, seed=1)], make_auxiliary()
    recipe = Recipe(batch_size=0, lr=0.1, clip_grad_norm=0.01)
    access = federated(engine, batches, auxiliary, recipe=recipe)
    found = ATTACKS.make(name).run(access, Knowledge(auxiliary=auxiliary), RNG)
    assert psnr_of_each(batches, found.x)[lone(batches, 200, auxiliary)].min() > 40


@pytest.mark.parametrize("name", ["robbing-the-fed(bins=200)", "mandrake(bins=200)"])
def test_colour_images_and_batch_norm_make_no_difference(engine, name):
    batches = [make_pictures(torch.linspace(0.3, 0.7, 8), channels=3, seed=seed) for seed in (1, 2)]
    batches[1] = Images((batches[1].x + 0.013).clamp(0, 1), batches[1].y, CLASSES)
    auxiliary = make_auxiliary(channels=3)
    access = federated(engine, batches, auxiliary, model=make_colour_model())
    found = ATTACKS.make(name).run(access, Knowledge(auxiliary=auxiliary), RNG)
    assert found.x.shape[1:] == (3, 8, 8)
    assert psnr_of_each(batches, found.x)[lone(batches, 200, auxiliary)].min() > 40


def test_a_bin_of_two_samples_holds_their_weighted_mean():
    pair = make_pictures([0.511, 0.512])
    access, auxiliary = double_server(make_plain_model(), [pair]), make_auxiliary()
    imprint = craft(access, auxiliary, bins=16, law="empirical", row=torch.full((64,), 1 / 64))
    serving = access.rebuilt(imprint.network)
    sums, weights = imprint.read(serving, serving.current, serving.exchange(serving.current, [0]))
    strongest = int(weights.abs().argmax())

    flatten, sense, *rest = deepcopy(imprint.network).double()
    measured = sense(flatten(pair.x.double())).detach().requires_grad_()
    F.cross_entropy(nn.Sequential(*rest)(measured), pair.y).backward()
    each = measured.grad[:, 0]
    expected = (each[:, None] * pair.x.double().flatten(1)).sum(0) / each.sum()
    torch.testing.assert_close(quotients(sums, weights)[strongest], expected, rtol=0, atol=1e-8)


def test_mandrake_parts_samples_of_two_clients_that_robbing_the_fed_mixes():
    batches, auxiliary = [make_pictures([0.41, 0.51]), make_pictures([0.41, 0.51], seed=1)], make_auxiliary()
    access, knowledge = double_server(make_plain_model(), batches), Knowledge(auxiliary=auxiliary)
    mixed = RobbingTheFed(bins=20).run(access, knowledge, RNG)
    parted = Loki(bins=20, slots=2).run(access, knowledge, RNG)
    assert psnr_of_each(batches, mixed.x).max() < 40
    assert psnr_of_each(batches, parted.x).min() > 80
    assert mixed.note == "clients do not train the layer after the imprint"
    assert parted.note == f"clients of different slots get different models; {mixed.note}"


def test_mandrake_says_that_clients_share_slots():
    batches = [make_pictures([b]) for b in (0.3, 0.4, 0.5)]
    found = Loki(bins=20, slots=2).run(
        double_server(make_plain_model(), batches), Knowledge(auxiliary=make_auxiliary()), RNG
    )
    assert "3 clients share 2 slots" in found.note
    assert psnr_of_each(batches, found.x).min() > 80


def test_slots_are_shared_evenly_by_samples():
    slots = share_slots([10, 1, 9, 2, 8], 3)
    held = [sum(size for size, at in zip([10, 1, 9, 2, 8], slots) if at == slot) for slot in range(3)]
    assert sorted(held) == [10, 10, 10]
    assert share_slots([3, 3], 8) in ([0, 1], [1, 0])


@pytest.mark.parametrize("recipe", [{"epochs": 3, "batch_size": 0}, {"epochs": 1, "batch_size": 3}])
@pytest.mark.parametrize("channel", ["ideal", "secure"])
@pytest.mark.parametrize("name", ["robbing-the-fed(bins=200)", "mandrake(bins=200)"])
def test_three_local_steps_still_leave_most_samples_readable(engine, name, channel, recipe):
    batches, auxiliary = [spread(9), spread(9, 0.3, 0.7, seed=1)], make_auxiliary()
    access = federated(engine, batches, auxiliary, channel, recipe=Recipe(lr=0.1, **recipe))
    found = ATTACKS.make(name).run(access, Knowledge(auxiliary=auxiliary), RNG)
    assert (psnr_of_each(batches, found.x) > 25).double().mean() > 0.7
    assert "do not train the layer after the imprint and the network behind it" in found.note


@pytest.mark.parametrize("name", ["robbing-the-fed(bins=200)", "mandrake(bins=200)"])
def test_weight_decay_is_taken_out_of_the_update(name):
    batches, auxiliary = [spread(9)], make_auxiliary()
    recipe = dataclasses.replace(ONE_STEP, weight_decay=0.01)
    access = double_server(make_plain_model(), batches, recipe)
    found = ATTACKS.make(name).run(access, Knowledge(auxiliary=auxiliary), RNG)
    assert psnr_of_each(batches, found.x)[lone(batches, 200, auxiliary)].min() > 80


@pytest.mark.parametrize("law", ["normal", "laplace", "empirical"])
def test_every_law_of_the_brightness_recovers_most(law):
    batches, auxiliary = [spread(12)], make_auxiliary()
    access = double_server(make_plain_model(), batches)
    found = RobbingTheFed(bins=200, law=law).run(access, Knowledge(auxiliary=auxiliary), RNG)
    assert (psnr_of_each(batches, found.x) > 80).double().mean() > 0.7


def test_signed_columns_keep_the_answer_within_a_few_bins():
    even = Bins(torch.linspace(0, 1, 101)[:100].double())
    assert even.answer(torch.linspace(0, 2, 777)).abs().max() < 0.021


def test_empty_bins_are_told_from_occupied_ones_by_their_noise():
    readings = 1e-3 * torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    readings[[3, 500, 999]] = torch.tensor([0.5, -1.0, 0.2], dtype=torch.double)
    assert occupied(readings, 3).tolist() == [500, 3, 999]


def test_a_sample_that_moves_between_bins_counts_once_and_crowds_nobody_out():
    weights = torch.zeros(100, dtype=torch.double)
    weights[[20, 21, 22, 60]] = torch.tensor([3.0, 2.0, 1.0, 0.5], dtype=torch.double)
    one, other = spread(2).x.flatten(1).double()
    pictures = torch.zeros(100, 64, dtype=torch.double)
    pictures[20:23], pictures[60] = one, other
    x, strength = decode(pictures * weights[:, None], weights, 2, 3, (1, 8, 8))
    torch.testing.assert_close(x.flatten(1).double(), torch.stack([one, other]), rtol=0, atol=1e-6)
    assert strength.tolist() == [3.0, 0.5]


def test_a_weight_that_contradicts_its_bin_gives_way():
    x = torch.full((3, 4), 0.5, dtype=torch.double)
    weights = torch.tensor([1.0, 1.0, 2.0], dtype=torch.double)
    sums = x * torch.tensor([1.0, 1.5, 2.0], dtype=torch.double)[:, None]
    bounds = torch.tensor([0.4, 0.5, 0.6]).double(), torch.tensor([0.5, 0.6, 0.7]).double()
    corrected = within_bins(sums, weights, bounds)
    torch.testing.assert_close(sums.mean(1) / corrected, torch.tensor([0.5, 0.6, 0.6]).double())
    assert corrected[0] == weights[0]


@pytest.mark.parametrize(
    "spec",
    [
        "robbing-the-fed(bins=1)",
        "robbing-the-fed(bins=2.5)",
        "robbing-the-fed(law='cauchy')",
        "mandrake(bins=0)",
        "mandrake(slots=0)",
        "mandrake(slots=True)",
    ],
)
def test_options_out_of_range_are_refused(spec):
    with pytest.raises(BadInput, match=r"out of range|unknown"):
        ATTACKS.make(spec)


@pytest.mark.parametrize("name", ["robbing-the-fed", "mandrake"])
def test_clients_with_adam_cannot_be_read(name):
    recipe = Recipe(optimiser="adam", lr=0.01)
    access = double_server(make_plain_model(), [spread(4)], recipe)
    assert "adam" in ATTACKS.make(name).cannot(access.protocol, samples=4)


@pytest.mark.parametrize("name", ["robbing-the-fed", "mandrake"])
def test_a_server_that_may_not_change_the_network_cannot_imprint(name):
    access = dataclasses.replace(double_server(make_plain_model(), [spread(4)]), rebuilt=None)
    with pytest.raises(CannotRun, match="may not change"):
        ATTACKS.make(name).run(access, Knowledge(auxiliary=make_auxiliary()), RNG)


def test_a_network_that_passes_no_gradient_cannot_be_read():
    model = make_plain_model()
    with torch.no_grad():
        model[1].weight.zero_()
    with pytest.raises(CannotRun, match="no gradient"):
        RobbingTheFed(bins=8).run(
            double_server(model, [spread(4)]), Knowledge(auxiliary=make_auxiliary()), RNG
        )

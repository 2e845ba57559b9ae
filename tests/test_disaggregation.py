"""Attacks that single out one client or one sample in a sum, and the inversion they end in."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import ONE_STEP, access_to, waiting
from conftest import CLASSES, SHAPE, make_images, make_model, make_plain_model, make_split
from torch import nn

from glasshouse.access import BlindServerAccess, ServerAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.eluding import Eluding, counting_model, target_labels, unpolluted
from glasshouse.attacks.crafted.fishing import Fishing, FishingServer
from glasshouse.attacks.crafted.gates import ThresholdSearch, find_gate, shut
from glasshouse.attacks.inversion.priors import total_variation
from glasshouse.attacks.inversion.target import Target
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.attacks.labels.head import find_head
from glasshouse.data.split import Split
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.channels.channel import Ideal, RoundFailed
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive


def make_access(engine, *, model=None, split=None, recipe=ONE_STEP):
    """A crafting server that sees exact sums, in front of clients that have not trained yet."""
    split = split or make_split((8, 12, 12))
    case = waiting(engine, model=model, split=split, recipe=recipe, channel=Ideal())
    return access_to(case, BlindServerAccess)


def gradient_of(network, images, labels):
    """The gradient of the mean cross-entropy as one vector, zero for buffers."""
    loss = F.cross_entropy(network(images), labels)
    parts = torch.autograd.grad(loss, list(network.parameters()))
    flat = torch.cat([part.flatten() for part in parts])
    return torch.cat([flat, torch.zeros(Layout.of(network).size - len(flat))])


def psnr(x, y):
    return -10 * torch.log10((x - y).square().mean()).item()


def smooth_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, CLASSES))


def generator():
    return torch.Generator().manual_seed(0)


def inverted(network, gradient, labels, known=None, **options):
    """The images that the inversion at the end of both attacks finds behind a gradient."""
    target = Target(network, Layout.of(network), gradient, SHAPE, CLASSES, len(labels), labels, known)
    return Eluding(tv=0.0, **options).inverted(target, (0,), generator()).x


def test_the_gradient_of_one_image_gives_it_away():
    network, images = smooth_network(), make_images(3)
    x, y = images.x[2:], images.y[2:]
    seen = gradient_of(network, x, y)
    found = inverted(network, seen, y, steps=500, restarts=2)
    assert found.shape == x.shape
    assert 0 <= found.min() <= found.max() <= 1
    assert psnr(found, x) > 20


def test_an_inversion_ignores_the_entries_that_others_have_moved():
    network, images = smooth_network(), make_images(3)
    layout, (x, y) = Layout.of(network), (images.x[1:2], images.y[1:2])
    seen, known = gradient_of(network, x, y), torch.ones(Layout.of(network).size, dtype=torch.bool)
    layout.named(known)["3.bias"].fill_(False)
    layout.named(seen)["3.bias"].fill_(1e6)
    found = inverted(network, seen, y, known, steps=800)
    assert psnr(found, x) > 20


def test_an_inversion_leaves_batch_norm_as_it_was():
    network = make_model().train()
    before = read_vector(network)
    seen, labels = torch.randn(len(before)), make_images(4).y
    inverted(network, seen, labels, steps=3)
    assert torch.equal(read_vector(network), before)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_total_variation_is_that_of_a_channel_whatever_their_number(channels):
    ramp = torch.arange(6.0).expand(1, 1, 4, 6) / 10
    assert total_variation(ramp.expand(2, channels, 4, 6)).item() == pytest.approx(0.1)
    assert total_variation(ramp.mT.expand(2, channels, 6, 4)).item() == pytest.approx(0.1)


def lenet_like():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, CLASSES),
    )  # fmt: skip


@pytest.mark.parametrize("recipe", [
    ONE_STEP,
    Recipe(epochs=2, batch_size=4, lr=0.05, momentum=0.5, weight_decay=0.01),
])  # fmt: skip
@pytest.mark.parametrize("network", [make_plain_model, lenet_like, make_model])
def test_eluding_leaves_the_targets_own_update_in_the_sum(engine, network, recipe):
    model, split = network(), make_split((8, 12, 12))
    target = 1
    access = make_access(engine, model=model, split=split, recipe=recipe)
    protocol, head = access.protocol, find_head(access.protocol)
    gate = find_gate(protocol, access.current, head)
    dead = shut(protocol, access.current, gate)
    delivery = access.exchange(dead, range(3), apart={target: access.current})
    seen = Eluding(target=target).target_update(access, delivery, dead)

    # The first round of a crafting server has this number, and its seed follows from it.
    seed = derive(derive(0, "round", 1_000_000), "client", target)
    alone = fit(laid_out(network()), access.current, split.client(target), recipe, seed) - access.current
    known = unpolluted(protocol, head, gate)
    assert known.sum() >= protocol.layout.trainable - CLASSES - 16
    scale = alone[known].abs().max()
    assert (seen - alone)[known].abs().max() < 2e-5 * scale


def test_the_targets_labels_are_counted_although_the_others_drown_its_bias(engine):
    split = make_split((9, 30, 30))
    access = make_access(engine, split=split)
    protocol, head = access.protocol, find_head(access.protocol)
    gate = find_gate(protocol, access.current, head)
    dead = shut(protocol, access.current, gate)
    counting = counting_model(protocol, access.current, head, gate)
    delivery = access.exchange(dead, range(3), apart={0: counting})
    counts = target_labels(protocol, head, Eluding().target_update(access, delivery, dead), 9)
    assert counts.tolist() == split.client(0).label_counts().tolist()


def test_one_step_of_an_update_is_the_gradient(engine):
    split = make_split((8, 12, 12))
    recipe = Recipe(epochs=1, batch_size=0, lr=0.1, weight_decay=0.1)
    access = access_to(waiting(engine, split=split, recipe=recipe), ServerAccess)
    delivery = access.exchange(access.current, [1])
    own = split.client(1)
    expected = gradient_of(make_plain_model(), own.x, own.y)
    update = AttackedUpdate(access.protocol, 0, access.current, delivery.mean, (1,), (len(own),))
    assert torch.allclose(update.gradient(), expected, atol=1e-5)


def test_eluding_returns_images_of_its_target_alone(engine):
    evidence = Eluding(target=2, most=3, steps=5).run(make_access(engine), Knowledge(), generator())
    assert evidence.parts[0].clients == (2,)
    assert evidence.x.shape == (3, *SHAPE)
    assert "3 images were sought to explain the gradient of 12" in evidence.note
    assert "2 rounds with the same client, which gets another model" in evidence.note


def fishing_split():
    """Three clients with 32 images; every class but one has several, that one a single image."""
    images = make_images(200)
    few = np.flatnonzero(images.y.numpy() == 3)
    many = np.flatnonzero(images.y.numpy() != 3)
    parts = many[:10], np.append(many[10:20], few[0]), many[20:31]
    rest = np.setdiff1d(np.arange(200), np.concatenate(parts))
    return Split(images, parts, rest[:40], rest[40:120], rest[120:]), int(few[0])


def cosine(first, second, known):
    return F.cosine_similarity(first[known], second[known], dim=0).item()


@pytest.mark.parametrize("network", [make_plain_model, lenet_like])
def test_class_fishing_leaves_the_gradient_of_the_only_sample_of_its_class(engine, network):
    split, lone = fishing_split()
    server = make_server(make_access(engine, model=network(), split=split))
    counts = server.label_counts()
    assert np.allclose(counts, split.images("members").label_counts().numpy(), atol=1e-3)
    alone = server.fish_class(3)
    assert alone is not None
    expected = gradient_of(alone.network, split.pool.x[[lone]], split.pool.y[[lone]])
    assert cosine(alone.gradient, expected, alone.known) > 0.999


@pytest.mark.parametrize("network", [make_plain_model, lenet_like])
def test_feature_fishing_leaves_the_gradient_of_one_of_many(engine, network):
    split, _ = fishing_split()
    server = make_server(make_access(engine, model=network(), split=split))
    own = np.flatnonzero(split.pool.y[split.members].numpy() == 1)
    assert len(own) > 5
    feature = server.choose_feature(split.images("auxiliary"), 1, float(len(own)))
    alone = server.fish_feature(feature, 20)
    assert alone is not None
    members = split.images("members")
    near = [
        cosine(alone.gradient, gradient_of(alone.network, members.x[[k]], members.y[[k]]), alone.known)
        for k in own
    ]
    assert max(near) > 0.95
    assert sorted(near)[-2] < max(near)


@pytest.mark.parametrize("shift", [-50.0, 0.0, 0.3, 50.0])
def test_a_threshold_for_one_sample_is_found_even_from_misleading_values(shift):
    rng = np.random.default_rng(0)
    values, auxiliary = rng.normal(size=20), np.sort(rng.normal(size=30) + shift)
    search = ThresholdSearch(auxiliary, 20.0)
    for _ in range(25):
        passed = int((values > search.next()).sum())
        if passed == 1:
            break
        search.narrow(too_low=passed > 1)
    assert passed == 1


def make_server(access):
    return FishingServer(access, find_head(access.protocol), 0.5, 1000.0)


def test_fishing_lands_an_image_and_says_how_many_rounds_it_took(engine):
    split, lone = fishing_split()
    access = make_access(engine, model=smooth_hidden(), split=split)
    told = Knowledge(auxiliary=split.images("auxiliary"))
    evidence = Fishing(steps=800, tv=0.0).run(access, told, generator())
    assert evidence.parts[0].clients == (0, 1, 2)
    assert "class 3, 2 rounds" in evidence.note
    assert psnr(evidence.x, split.pool.x[[lone]]) > 20


def test_fishing_asks_again_where_the_client_with_the_only_sample_dropped_out(engine):
    split, _ = fishing_split()
    access = make_access(engine, split=split)
    rounds = []

    def lossy(vector, clients, apart=None):
        rounds.append(vector)
        return access.exchange(vector, [0, 2] if len(rounds) == 2 else clients)

    losing = BlindServerAccess(access.protocol, access.current, access.sizes, lossy)
    told = Knowledge(auxiliary=split.images("auxiliary"))
    evidence = Fishing(steps=2).run(losing, told, generator())
    assert len(evidence.x) == 1
    assert "class 3, 3 rounds" in evidence.note


def smooth_hidden():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 48), nn.Sigmoid(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, CLASSES)
    )


def test_fishing_without_fish_comes_home_empty(engine):
    images = make_images(200)
    caught = np.flatnonzero(images.y.numpy() < 3)
    rest = np.setdiff1d(np.arange(200), caught[:20])
    split = Split(images, (caught[:10], caught[10:20]), rest[:20], rest[20:100], rest[100:])
    told = Knowledge(auxiliary=split.images("auxiliary"))
    evidence = Fishing(label=3).run(make_access(engine, split=split), told, generator())
    assert len(evidence.x) == 0
    assert "no client holds a sample of class 3" in evidence.note


@pytest.mark.parametrize("attack", [Fishing(steps=2), Eluding(steps=2)])
def test_a_refused_round_is_not_swallowed(engine, attack):
    access = make_access(engine)

    def refuse(vector, clients, apart=None):
        raise RoundFailed("every client refused the model: dead layer")

    refusing = BlindServerAccess(access.protocol, access.current, access.sizes, refuse)
    with pytest.raises(RoundFailed, match="dead layer"):
        attack.run(refusing, Knowledge(auxiliary=make_images(20)), generator())


@pytest.mark.parametrize("attack", [Fishing(steps=2), Eluding(steps=2)])
def test_disaggregation_says_why_it_does_not_apply(engine, attack):
    told = Knowledge(auxiliary=make_images(40, seed=1))
    with pytest.raises(CannotRun, match="adam"):
        attack.run(make_access(engine, recipe=Recipe(optimiser="adam", lr=0.01)), told, generator())
    tanh = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    with pytest.raises(CannotRun, match="ReLU"):
        attack.run(make_access(engine, model=tanh), told, generator())


@pytest.mark.parametrize("spec", [
    "eluding(target=-1)", "eluding(most=0)", "eluding(steps=0)", "eluding(tv=-1)", "eluding(restarts=0)",
    "eluding(target=0.5)", "fishing(rounds=2.5)", "fishing(label=-1)", "fishing(rounds=1)",
    "fishing(strength=0)", "fishing(bias=1)", "fishing(steps=0)",
])  # fmt: skip
def test_bad_options_are_refused_in_one_line(spec):
    with pytest.raises(BadInput, match="is out of range") as refusal:
        ATTACKS.make(spec)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("attack", [Fishing(label=CLASSES), Eluding(target=3)])
def test_a_target_that_is_not_there_is_refused(engine, attack):
    with pytest.raises(BadInput, match="but there are"):
        attack.run(make_access(engine), Knowledge(auxiliary=make_images(20)), generator())

import itertools
from statistics import NormalDist

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import ONE_STEP, access_to, waiting
from conftest import CLASSES, SHAPE, make_images, make_plain_model
from torch import nn

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.cut import find_cut
from glasshouse.attacks.crafted.peeling import suggested_directions, suggested_rounds
from glasshouse.attacks.crafted.scale_mia import ScaleMIA, brightness_quantiles
from glasshouse.attacks.crafted.scale_mia_coded import CodedScaleMIA, PeeledScaleMIA
from glasshouse.attacks.crafted.sorting import class_weights, make_sorter
from glasshouse.attacks.crafted.surrogate import Decoder, Schooling, make_surrogate, shrink
from glasshouse.data.split import Split
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.channels import CHANNELS
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import match
from glasshouse.models import build
from glasshouse.vetting.vet import vet

NOTHING = np.empty(0, dtype=int)
AUXILIARY = make_images(600, seed=7)


def rng():
    return torch.Generator().manual_seed(0)


def wide_model(width=64, hidden=False):
    """The latent is the image itself, so that nothing is lost in a decoder."""
    torch.manual_seed(0)
    between = (
        [nn.Linear(width, 12), nn.ReLU(), nn.Linear(12, CLASSES)] if hidden else [nn.Linear(width, CLASSES)]
    )
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), *between)


def protocol_of(model, recipe=ONE_STEP):
    return Protocol(model, Layout.of(model), recipe, SHAPE, CLASSES, CHANNELS.make("ideal"))


def serving(model, engine, sizes, channel="ideal", recipe=ONE_STEP):
    """A blind crafting server, and the images of each client."""
    pool = make_images(sum(sizes), seed=3)
    clients = tuple(np.split(np.random.default_rng(0).permutation(len(pool)), np.cumsum(sizes)[:-1]))
    split = Split(pool, clients, NOTHING, NOTHING, NOTHING)
    case = waiting(engine, model=model, split=split, recipe=recipe, channel=CHANNELS.make(channel))
    return access_to(case, BlindServerAccess), [pool[positions].x for positions in clients]


def recovered(evidence, held):
    x = torch.cat([held[client] for client in evidence.parts[0].clients])
    return float((match(x, evidence.x).psnr >= 30).mean())


def test_two_samples_of_one_bin_never_weigh_like_one():
    for classes in range(2, 25):
        weights, probabilities = class_weights(classes, alone=False)
        assert float(probabilities.sum()) == pytest.approx(1)
        assert float((weights * probabilities).sum()) == pytest.approx(0, abs=1e-12)
        for a, b in itertools.combinations_with_replacement(weights.tolist(), 2):
            assert min(abs(a + b - single) for single in weights.tolist()) > 0.05


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("directions", [1, 3])
def test_a_sample_has_the_weight_of_its_class_in_every_row_that_it_activates(hidden, directions):
    model = wide_model(hidden=hidden)
    access = BlindServerAccess(protocol_of(model), read_vector(model), (8,), None)
    attack = PeeledScaleMIA(directions=directions, rounds=1)
    surrogate = attack.prepare(access, AUXILIARY.x)
    crafted = attack.craft(surrogate, access, AUXILIARY, rng())
    write_vector(model, crafted.vectors[0])
    model.double()
    weights, gain = crafted.code[0], crafted.unit / ONE_STEP.lr
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.double).repeat(16)
    for x, y in zip(AUXILIARY.x[:5].double(), AUXILIARY.y[:5]):
        model.zero_grad()
        F.cross_entropy(model(x[None]), y[None]).backward()
        active = model[1](x.flatten()) > 0
        expected = torch.where(active, -gain * weights[y] * signs, 0.0)
        torch.testing.assert_close(model[1].bias.grad, expected, rtol=0.01, atol=1e-6 * gain)
        outer = model[1].bias.grad[:, None] * x.flatten()
        torch.testing.assert_close(model[1].weight.grad, outer, rtol=1e-9, atol=1e-12)


def test_pages_tell_of_every_bin_once_and_like_one_large_layer():
    latents = torch.rand(500, 10, generator=rng())
    sorter = make_sorter(latents, 61, 3, "empirical")
    gradient, bias = torch.randn(61, 10, dtype=torch.double), torch.randn(61, dtype=torch.double)
    told = []
    for page in sorter.pages(16):
        assert len(page) <= 16
        bins, sums, weights = sorter.read(page, gradient[page], bias[page])
        told += bins.tolist()
        whole_bins, whole_sums, whole_weights = sorter.read(torch.arange(61), gradient, bias)
        assert whole_bins.tolist() == list(range(61))
        assert torch.equal(sums, whole_sums[bins])
        assert torch.equal(weights, whole_weights[bins])
    assert told == list(range(61))


def test_bins_are_where_the_rows_switch():
    latents = torch.rand(300, 10, generator=rng())
    sorter = make_sorter(latents, 30, 2, "empirical")
    weight, bias = sorter.layer(torch.arange(30))
    active = latents.double() @ weight.T + bias > 0
    counted = torch.stack([active[:, rows].sum(1) - 1 for rows in sorter.rows], dim=1)
    assert torch.equal(counted, sorter.bins(latents))


@pytest.mark.parametrize("channel", ["ideal", "secure", "secure(dropout_before=0.25)"])
def test_peeling_finds_every_sample_where_one_direction_loses_collisions(engine, channel):
    access, held = serving(wide_model(width=256), engine, (40, 32, 39, 41), channel)
    knowledge = Knowledge(auxiliary=AUXILIARY)
    peeled = PeeledScaleMIA(rounds=1).run(access, knowledge, rng())
    single = CodedScaleMIA().run(access, knowledge, rng())
    assert recovered(peeled, held) > 0.97
    samples = sum(len(held[client]) for client in single.parts[0].clients)
    alone = (1 - 1 / 256) ** (samples - 1)
    assert recovered(single, held) == pytest.approx(alone, abs=0.15)


def test_more_rounds_make_room_for_more_samples_than_there_are_rows(engine):
    access, held = serving(wide_model(width=32), engine, (90, 120, 105), "secure")
    several = PeeledScaleMIA().run(access, Knowledge(auxiliary=AUXILIARY), rng())
    assert recovered(several, held) > 0.85
    assert several.note == f"{suggested_rounds(315, 32, True)} rounds with the same clients"
    one = PeeledScaleMIA(rounds=1).run(access, Knowledge(auxiliary=AUXILIARY), rng())
    assert recovered(one, held) < 0.3


@pytest.mark.parametrize(("epochs", "batch_size"), [(3, 0), (1, 4)])
def test_several_local_steps_blur_but_do_not_stop_it(engine, epochs, batch_size):
    recipe = Recipe(epochs=epochs, batch_size=batch_size, lr=0.05)
    access, held = serving(wide_model(hidden=True), engine, (8, 8), "ideal", recipe)
    evidence = CodedScaleMIA(law="empirical").run(access, Knowledge(auxiliary=AUXILIARY), rng())
    x = torch.cat([held[client] for client in evidence.parts[0].clients])
    assert (match(x, evidence.x).psnr >= 18).mean() > 0.4


def test_no_more_images_come_back_than_there_are_samples(engine):
    access, _ = serving(wide_model(), engine, (30, 40), "secure")
    evidence = CodedScaleMIA().run(access, Knowledge(auxiliary=AUXILIARY), rng())
    assert len(evidence.x) <= 70
    assert float(evidence.x.min()) >= 0
    assert float(evidence.x.max()) <= 1


def test_latents_are_decoded_by_an_autoencoder_that_learned_from_auxiliary_images(engine):
    torch.manual_seed(0)
    model = build("cnn", SHAPE, CLASSES)
    access, held = serving(model, engine, (8, 8), "secure")
    evidence = PeeledScaleMIA(steps=250, rounds=1).run(access, Knowledge(auxiliary=AUXILIARY), rng())
    x = torch.cat(held)
    assert (match(x, evidence.x).psnr >= 15).mean() > 0.9
    assert evidence.offline > evidence.online


def test_a_shrunken_encoder_gives_the_same_latents_only_shorter():
    torch.manual_seed(0)
    model = build("cnn", SHAPE, CLASSES)
    protocol = protocol_of(model)
    cut = find_cut(protocol)
    schooling = Schooling(steps=2, batch_size=8, lr=1e-3)
    surrogate = make_surrogate(protocol, cut, AUXILIARY.x[:50], schooling, rng())
    shrunken = shrink(surrogate, protocol)
    write_vector(model, shrunken.vector)
    with torch.no_grad():
        latents = model.encoder(AUXILIARY.x[:50])
    torch.testing.assert_close(latents, surrogate.latents * shrunken.shrunk, rtol=1e-4, atol=1e-6)
    assert float(latents.square().sum(1).mean()) == pytest.approx(1, rel=1e-3)
    torch.testing.assert_close(
        shrunken.decode(latents), surrogate.decode(surrogate.latents), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
@pytest.mark.parametrize("name", ["lenet", "cnn", "alexnet", "vgg", "resnet", "vit", "c1"])
def test_every_encoder_has_a_decoder(name, shape):
    torch.manual_seed(0)
    model = build(name, shape, 10)
    cut = find_cut(Protocol(model, Layout.of(model), ONE_STEP, shape, 10))
    decoder = Decoder(cut.latent, shape)
    width = model.get_submodule(cut.linear[0]).in_features
    assert decoder(torch.rand(2, width)).shape == (2, *shape)


@pytest.mark.parametrize("name", ["convnet", "resnet18", "stdcnn"])
def test_networks_without_two_bare_linear_layers_are_left_alone(name):
    model = build(name, (3, 32, 32), 10)
    with pytest.raises(CannotRun, match="two linear layers"):
        find_cut(Protocol(model, Layout.of(model), ONE_STEP, (3, 32, 32), 10))


def test_adaptive_optimisers_are_left_alone(engine):
    access, _ = serving(make_plain_model(), engine, (8, 8), recipe=Recipe(optimiser="adam", lr=0.01))
    for attack in (ScaleMIA(), CodedScaleMIA()):
        assert "adam" in attack.cannot(access.protocol, samples=16)


@pytest.mark.parametrize(("width", "options"), [(1, {}), (2, {"directions": 8, "rounds": 1})])
def test_too_few_rows_for_a_sorting_machine_are_left_alone(engine, width, options):
    access, _ = serving(wide_model(width=width), engine, (8, 8))
    with pytest.raises(CannotRun, match="too few"):
        PeeledScaleMIA(**options).run(access, Knowledge(auxiliary=AUXILIARY), rng())


def test_rounds_that_other_clients_came_through_are_left_out_and_told(engine):
    access, held = serving(wide_model(), engine, (8, 8, 8, 8), "secure(dropout_before=0.25)")
    evidence = PeeledScaleMIA(rounds=4).run(access, Knowledge(auxiliary=AUXILIARY), rng())
    assert "of them lost because other clients dropped out" in evidence.note
    assert recovered(evidence, held) > 0


def test_a_norm_without_images_to_rehearse_with_is_left_alone(engine):
    access, _ = serving(wide_model(), engine, (1, 1))
    with pytest.raises(CannotRun, match="rehearsed"):
        CodedScaleMIA(norm=1.0).run(access, Knowledge(auxiliary=AUXILIARY), rng())


def test_several_steps_without_images_to_rehearse_with_still_run(engine):
    access, _ = serving(wide_model(), engine, (1, 1), recipe=Recipe(epochs=2, batch_size=0, lr=0.05))
    evidence = CodedScaleMIA().run(access, Knowledge(auxiliary=AUXILIARY), rng())
    assert len(evidence.x) <= 2


def test_directions_are_chosen_by_the_load():
    assert suggested_directions(512, 1024) == 3
    assert suggested_directions(1024, 1024) == 1
    assert suggested_rounds(512, 1024, True) == 1
    assert suggested_rounds(2000, 1024, True) == 4


@pytest.mark.parametrize(
    "options", ["steps=0", "steps=2.5", "batch_size=1", "lr=0", "directions=9", "rounds=-1", "law='uniform'"]
)
@pytest.mark.parametrize("name", ["scale-mia-coded", "scale-mia-peeled"])
def test_options_out_of_range_are_refused_by_name(name, options):
    with pytest.raises(BadInput, match=f"{name}.*{options.partition('=')[0]}"):
        ATTACKS.make(f"{name}({options})")


# The attack as published.


def published_model(current, last="kept"):
    """What the published attack sends to clients of the model `current`, by name, and the surrogate."""
    access = BlindServerAccess(protocol_of(current), read_vector(current), (8, 8), None)
    attack = ScaleMIA(last=last)
    surrogate = attack.prepare(access, AUXILIARY.x)
    crafted = attack.craft(surrogate, access, AUXILIARY, rng())
    (vector,) = crafted.vectors
    return access.protocol.layout.named(vector), surrogate


def test_the_published_model_is_crafted_as_the_paper_says_and_else_what_it_was():
    model = wide_model(hidden=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1  # the model has been trained since it was agreed on
    sent, surrogate = published_model(model)
    assert torch.equal(sent["1.weight"], torch.full((64, 64), 1 / 64))
    assert torch.equal(sent["3.weight"], torch.full((12, 64), 1 / 64))
    assert torch.equal(sent["3.bias"], torch.full((12,), 1 / 12))
    assert torch.equal(sent["5.weight"], model[5].weight.detach())
    assert torch.equal(sent["5.bias"], model[5].bias.detach())
    means = surrogate.latents.double().mean(1).numpy()
    law = NormalDist(means.mean(), means.std())
    expected = [-law.inv_cdf(0.001 + 0.998 * place / 63) for place in range(64)]
    assert sent["1.bias"].tolist() == pytest.approx(expected, rel=1e-5)


def test_the_last_layer_is_drawn_where_that_is_asked_for():
    model = wide_model(hidden=True)
    sent, _ = published_model(model, last="drawn")
    assert not torch.equal(sent["5.weight"], model[5].weight.detach())
    assert 0 <= float(sent["5.weight"].min()) < 0.1 < 0.9 < float(sent["5.weight"].max()) < 1
    assert torch.equal(sent["3.weight"], torch.full((12, 64), 1 / 64))


def lone_samples(width, count):
    """Positions of images of `serving`'s pool whose brightness lies alone between two thresholds."""
    pool = make_images(count, seed=3)
    cuts = brightness_quantiles(AUXILIARY.x.flatten(1), width)
    bins = torch.searchsorted(cuts, pool.x.double().flatten(1).mean(1)) - 1
    found, counts = bins.unique(return_counts=True)
    alone = set(found[(counts == 1) & (found >= 0)].tolist())
    return [place for place, where in enumerate(bins.tolist()) if where in alone]


def test_samples_alone_between_two_thresholds_are_exact_through_an_ideal_sum(engine):
    access, held = serving(wide_model(width=128, hidden=True), engine, (8, 8, 8))
    evidence = ScaleMIA().run(access, Knowledge(auxiliary=AUXILIARY), rng())
    pool = make_images(24, seed=3).x
    alone = lone_samples(128, 24)
    assert len(alone) > 12
    assert match(pool[alone], evidence.x).psnr.min() > 35
    assert recovered(evidence, held) >= len(alone) / 24


def test_quantisation_hurts_the_published_attack_more_than_the_coded_one(engine):
    lost = {}
    for attack in (ScaleMIA(), CodedScaleMIA()):
        rates = []
        for channel in ("ideal", "secure(bits=22)"):
            access, held = serving(wide_model(width=256, hidden=True), engine, (40, 40, 40), channel)
            evidence = attack.run(access, Knowledge(auxiliary=AUXILIARY), rng())
            rates.append(recovered(evidence, held))
        lost[attack.name] = rates[0] - rates[1]
        assert rates[0] > 0.5
    assert lost["scale-mia"] > lost["scale-mia-coded"] + 0.3


def test_a_second_layer_that_is_the_last_passes_no_gradient_and_is_refused(engine):
    access, _ = serving(wide_model(), engine, (8, 8))
    assert "scale-mia-coded works with two layers" in ScaleMIA().cannot(access.protocol, samples=16)
    assert CodedScaleMIA().cannot(access.protocol, samples=16) is None
    model = wide_model()
    with torch.no_grad():
        model[3].weight.fill_(1 / 64)
    F.cross_entropy(model(AUXILIARY.x[:8]), AUXILIARY.y[:8]).backward()
    assert float(model[1].weight.grad.abs().max()) < 1e-8


@pytest.mark.parametrize("attack", [ScaleMIA(), ScaleMIA(last="drawn"), CodedScaleMIA(), PeeledScaleMIA()])
def test_a_client_that_vets_flags_every_head(attack):
    torch.manual_seed(0)
    model = build("cnn", SHAPE, CLASSES)
    access = BlindServerAccess(protocol_of(model), read_vector(model), (8, 8), None)
    schooling = Schooling(steps=2, batch_size=8, lr=1e-3)
    surrogate = make_surrogate(access.protocol, find_cut(access.protocol), AUXILIARY.x, schooling, rng())
    assert not vet(model, SHAPE).crafted
    write_vector(model, attack.craft(surrogate, access, AUXILIARY, rng()).vectors[0])
    assert vet(model, SHAPE).crafted


@pytest.mark.parametrize("options", ["steps=0", "lr=0", "last='random'", "directions=1"])
def test_the_published_attack_has_no_options_of_ours(options):
    with pytest.raises(BadInput, match=options.partition("=")[0]):
        ATTACKS.make(f"scale-mia({options})")


def test_each_attack_is_registered_under_the_name_it_gives_itself():
    for attack in (ScaleMIA, CodedScaleMIA, PeeledScaleMIA):
        assert type(ATTACKS.make(attack.name)) is attack

"""The networks of the study `fed-fsnet`: one for colour, and an extractor that was trained elsewhere."""

import pytest
import torch
from torch import nn

from glasshouse.data.images import Images
from glasshouse.models.loading import seeded_model
from glasshouse.studies.fed_fsnet import networks
from glasshouse.studies.fed_fsnet.grid import EXTRACTORS, SMOKE
from glasshouse.studies.fed_fsnet.networks import HELD_OUT, extracted, source_of, spec_of
from glasshouse.studies.fed_fsnet.training import divided, first_model, undivided

BEHIND = SMOKE.behind[1]


def test_the_colour_network_normalises_each_image_by_itself():
    network = seeded_model(spec_of("gn-cnn"), (3, 32, 32), 10, 0).eval()
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(x)[:1], network(x[:1]), rtol=1e-5, atol=1e-5)
    assert not list(network.buffers())
    assert network(x).shape == (4, 10)


@pytest.mark.parametrize("side", [8, 15, 28, 32])
def test_the_colour_network_takes_images_of_any_usual_size(side):
    assert seeded_model(spec_of("gn-cnn"), (1, side, side), 3, 0)(torch.rand(2, 1, side, side)).shape == (
        2,
        3,
    )


def _source(count=80):
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return Images(x, torch.arange(count) % 4, 4)


def test_features_are_those_of_a_network_that_never_sees_the_pool(monkeypatch):
    monkeypatch.setattr(networks, "FEWEST_STEPS", 2)
    pool = _source(10)
    whole, part = extracted(pool, _source(), 0), extracted(pool[:3], _source(), 0)
    assert whole.shape == (1, 1, 64)
    assert torch.equal(whole.y, pool.y)
    assert whole.x.min() >= 0
    assert whole.x.max() <= 1
    torch.testing.assert_close(whole.x[:3], part.x)
    assert not torch.equal(whole.x, extracted(pool, _source(), 1).x)


def test_an_extractor_learns_from_another_data_set_or_from_what_the_server_holds():
    held_out = _source(5)
    assert source_of(HELD_OUT, held_out) is held_out
    assert len(source_of("digits", held_out)) > len(held_out)
    assert all(data != source for data, source in EXTRACTORS.items())


def test_a_method_behind_an_extractor_divides_the_same_images_and_trains_on_their_features():
    plain, features = (divided(SMOKE, method, 0) for method in (SMOKE.methods[1], BEHIND))
    assert all(map(torch.equal, map(torch.tensor, plain.clients), map(torch.tensor, features.clients)))
    assert torch.equal(plain.pool.y, features.pool.y)
    assert features.pool.shape == (1, 1, 64)
    model = first_model(SMOKE, features.pool, 0)
    assert next(layer for layer in model.modules() if isinstance(layer, nn.Linear)).in_features == 64
    assert undivided(SMOKE, 0, HELD_OUT) is undivided(SMOKE, 0, HELD_OUT)

import pytest
import torch
from conftest import make_model

from glasshouse.defences import make_defences
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout
from glasshouse.learning.step import PLAIN


@pytest.fixture
def layout():
    return Layout.of(make_model())


def defended(spec, delta, layout, seed=0):
    return make_defences(spec).on_update(delta, layout, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "spec",
    ["gaussian-noise(std=0.1)", "laplacian-noise(scale=0.1)", "pruning(fraction=0.9)", "clipping(norm=0.1)"],
)
def test_defences_leave_batch_norm_statistics_alone(spec, layout):
    delta = torch.randn(layout.size, generator=torch.Generator().manual_seed(1))
    after = defended(spec, delta, layout)
    assert torch.equal(after[layout.trainable :], delta[layout.trainable :])
    assert not torch.equal(after[: layout.trainable], delta[: layout.trainable])


@pytest.mark.parametrize(
    ("spec", "std"), [("gaussian-noise(std=0.2)", 0.2), ("laplacian-noise(scale=0.2)", 0.2 * 2**0.5)]
)
def test_noise_has_the_spread_it_says(spec, std, layout):
    noise = defended(spec, torch.zeros(layout.size), layout)[: layout.trainable]
    assert noise.std().item() == pytest.approx(std, rel=0.05)
    assert abs(noise.mean().item()) < 4 * std / layout.trainable**0.5


def test_laplacian_noise_has_heavier_tails_than_gaussian_noise(layout):
    def kurtosis(spec):
        noise = defended(spec, torch.zeros(layout.size), layout)[: layout.trainable]
        return (noise**4).mean() / (noise**2).mean() ** 2

    assert kurtosis("gaussian-noise(std=1.0)") == pytest.approx(3, abs=0.5)
    assert kurtosis("laplacian-noise(scale=1.0)") == pytest.approx(6, abs=1.5)


@pytest.mark.parametrize("fraction", [0.7, 0.95, 0.99])
def test_pruning_keeps_the_largest_entries_of_each_tensor(fraction, layout):
    delta = torch.randn(layout.size, generator=torch.Generator().manual_seed(1))
    after = defended(f"pruning(fraction={fraction})", delta, layout)
    for name in ("5.weight", "7.weight", "7.bias"):
        before, kept = layout.named(delta)[name].flatten(), layout.named(after)[name].flatten()
        survivors = kept != 0
        assert (~survivors).sum() == int(fraction * len(kept))
        assert torch.equal(kept[survivors], before[survivors])
        assert before[survivors].abs().min() >= before[~survivors].abs().max()


def test_clipping_shortens_long_updates_and_leaves_short_ones(layout):
    delta = torch.randn(layout.size)
    long = defended("clipping(norm=0.5)", delta, layout)[: layout.trainable]
    assert long.norm().item() == pytest.approx(0.5, rel=1e-5)
    assert torch.nn.functional.cosine_similarity(long, delta[: layout.trainable], dim=0) > 0.99999
    torch.testing.assert_close(defended("clipping(norm=1e5)", delta, layout), delta)


def test_defences_compose_in_order(layout):
    delta = torch.randn(layout.size)
    clipped = defended("clipping(norm=1.0)", delta, layout)
    both = defended("clipping(norm=1.0)+gaussian-noise(std=0.1)", delta, layout)
    torch.testing.assert_close(both, defended("gaussian-noise(std=0.1)", clipped, layout))


def test_no_defence_changes_nothing(layout):
    delta = torch.randn(layout.size)
    stack = make_defences("none")
    assert stack.on_update(delta, layout, torch.Generator()) is delta
    assert stack.training() is PLAIN


@pytest.mark.parametrize(("spec", "words"), [
    ("prunning", "did you mean 'pruning'"),
    ("pruning(fraction=1.5)", "1.5 is out of range; it must be a number at least 0 and below 1"),
    ("pruning(share=0.5)", "unexpected keyword argument 'share'"),
    ("clipping(norm=0)", "norm = 0 is out of range"),
    ("gaussian-noise(std=", "cannot be read"),
    ("gaussian-noise(0.1)", "cannot be read"),
])  # fmt: skip
def test_wrong_defences_are_refused_with_a_remedy(spec, words):
    with pytest.raises(BadInput, match=words):
        make_defences(spec)

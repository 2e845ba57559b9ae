import itertools
import math

import numpy as np
import pytest
import torch

from glasshouse.measures import pictures
from glasshouse.measures.pictures import (
    CAP,
    match,
    mean_guess,
    oracle_guess,
    others,
    paired_psnr,
    paired_ssim,
    psnr,
    single_guess,
)


def some(count: int, seed: int = 0, shape: tuple[int, int, int] = (3, 8, 8)) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def plain_psnr(one: torch.Tensor, other: torch.Tensor) -> float:
    """Pixel by pixel, with Python's own numbers."""
    pairs = list(zip(one.flatten().tolist(), other.flatten().tolist()))
    error = math.fsum((a - b) ** 2 for a, b in pairs) / len(pairs)
    return min(100.0, -10 * math.log10(error)) if error else 100.0


def plain_ssim(one: torch.Tensor, other: torch.Tensor, side: int) -> float:
    """Window by window, after Wang, Bovik, Sheikh and Simoncelli (2004)."""
    places = np.arange(side) - side // 2
    weights = np.exp(-(places**2) / (2 * 1.5**2))
    window = np.outer(weights, weights) / weights.sum() ** 2
    similarities = []
    for x, y in zip(one.double().numpy(), other.double().numpy()):
        for i, j in itertools.product(range(x.shape[0] - side + 1), range(x.shape[1] - side + 1)):
            a, b = x[i : i + side, j : j + side], y[i : i + side, j : j + side]
            mean_a, mean_b = (window * a).sum(), (window * b).sum()
            var_a, var_b = (window * (a - mean_a) ** 2).sum(), (window * (b - mean_b) ** 2).sum()
            shared = (window * (a - mean_a) * (b - mean_b)).sum()
            light = (2 * mean_a * mean_b + 1e-4) / (mean_a**2 + mean_b**2 + 1e-4)
            similarities.append(light * (2 * shared + 9e-4) / (var_a + var_b + 9e-4))
    return float(np.mean(similarities))


def test_the_psnr_matrix_is_that_of_plain_loops():
    originals, others = some(7), some(5, seed=1)
    expected = [[plain_psnr(one, other) for other in others] for one in originals]
    np.testing.assert_allclose(psnr(originals, others), expected, rtol=1e-12)
    np.testing.assert_allclose(paired_psnr(originals[:5], others), np.diag(expected), rtol=1e-12)


@pytest.mark.parametrize("error", [1.0, 0.5, 0.1, 1e-2, 1e-4])
def test_a_constant_error_has_its_psnr_in_closed_form(error):
    black = torch.zeros(1, 3, 32, 32, dtype=torch.float64)
    assert psnr(black, black + error) == pytest.approx(-20 * math.log10(error))
    assert paired_psnr(black, black + error) == pytest.approx(-20 * math.log10(error))


def test_the_matrix_tells_large_bright_images_apart_up_to_the_cap():
    white = torch.ones(1, 3, 224, 224, dtype=torch.float64)
    assert psnr(white, white - 1.1e-5).item() == pytest.approx(-20 * math.log10(1.1e-5), abs=0.01)


def test_equal_images_have_the_cap_and_a_mean_over_them_stays_finite():
    originals = some(4)
    assert np.diag(psnr(originals, originals)).tolist() == [CAP] * 4
    assert paired_psnr(originals, originals).tolist() == [CAP] * 4
    assert psnr(originals[:1], originals[:1] + 1e-7).item() == CAP


def test_the_psnr_does_not_depend_on_how_many_images_are_compared_at_a_time(monkeypatch):
    originals, others = some(10), some(4, seed=1)
    at_once = psnr(originals, others), paired_ssim(originals[:4], others), oracle_guess(originals, others)
    monkeypatch.setattr(pictures, "ROWS", 3)
    in_parts = psnr(originals, others), paired_ssim(originals[:4], others), oracle_guess(originals, others)
    for one, other in zip(at_once, in_parts):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_match_is_the_best_of_all_assignments(seed):
    originals, returned = some(5, seed, (1, 2, 2)), some(3, seed + 100, (1, 2, 2))
    table = [[plain_psnr(one, other) for other in returned] for one in originals]
    best = max(sum(table[i][k] for k, i in enumerate(rows)) for rows in itertools.permutations(range(5), 3))
    matched = match(originals, returned)
    assert matched.psnr[matched.returned].sum() == pytest.approx(best)
    assert matched.returned.sum() == 3


def test_shuffled_originals_are_all_put_back_in_their_places():
    originals = some(50)
    matched = match(originals, originals[torch.randperm(50)])
    torch.testing.assert_close(matched.guess, originals.double())
    assert (matched.psnr == CAP).all()


def test_an_image_that_fits_two_originals_is_counted_once():
    originals = some(1).repeat(2, 1, 1, 1)
    matched = match(originals, originals[:1])
    assert sorted(matched.psnr) == pytest.approx([plain_psnr(originals[0], torch.full((3, 8, 8), 0.5)), CAP])


def test_where_nothing_was_returned_grey_stands_in():
    originals = some(6)
    matched = match(originals, originals[:0])
    assert not matched.returned.any()
    assert (matched.guess == 0.5).all()
    grey = torch.full((3, 8, 8), 0.5)
    np.testing.assert_allclose(matched.psnr, [plain_psnr(one, grey) for one in originals])


@pytest.mark.parametrize(("shape", "side"), [((1, 8, 8), 7), ((3, 12, 14), 11), ((2, 5, 20), 5)])
def test_the_ssim_is_that_of_plain_loops_with_the_largest_window_that_fits(shape, side):
    originals, others = some(3, 0, shape), some(3, 1, shape)
    others = 0.7 * originals + 0.3 * others
    expected = [plain_ssim(one, other, side) for one, other in zip(originals, others)]
    np.testing.assert_allclose(paired_ssim(originals, others), expected, rtol=1e-9)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 1, 1)])
def test_equal_pictures_have_an_ssim_of_one(shape):
    originals = torch.cat([some(2, 0, shape), torch.zeros(1, *shape), torch.ones(1, *shape)])
    np.testing.assert_allclose(paired_ssim(originals, originals), 1.0, rtol=1e-12)


def test_a_negative_is_unlike_its_picture():
    picture = some(1)
    assert paired_ssim(picture, 1 - picture).item() < 0


def test_the_oracle_shows_the_nearest_auxiliary_image():
    originals, auxiliary = some(9), some(40, seed=1)
    guesses = oracle_guess(originals, auxiliary)
    for original, guess in zip(originals, guesses):
        nearest = max(auxiliary, key=lambda other: plain_psnr(original, other))
        assert torch.equal(guess, nearest)


def test_the_oracle_looks_at_so_many_auxiliary_images_only(monkeypatch):
    originals = some(3)
    monkeypatch.setattr(pictures, "AUXILIARY", 5)
    auxiliary = torch.cat([some(5, seed=1), originals])
    assert paired_psnr(originals, oracle_guess(originals, auxiliary)).max() < CAP


@pytest.mark.parametrize("guess", [oracle_guess, mean_guess, single_guess])
def test_without_auxiliary_images_every_guess_is_grey(guess):
    assert torch.equal(guess(some(3), some(0)), torch.full((3, 3, 8, 8), 0.5))


def test_the_mean_guess_is_the_mean_of_the_auxiliary_images_whatever_the_originals():
    levels = torch.tensor([0.1, 0.2, 0.6])[:, None, None, None].expand(3, 3, 8, 8)
    assert mean_guess(some(5), levels).numpy() == pytest.approx(0.3)


def test_the_single_guess_serves_the_auxiliary_images_best_whatever_the_originals():
    auxiliary = some(12, seed=1) * torch.linspace(0.2, 1, 12)[:, None, None, None]
    means = [np.mean([plain_psnr(one, other) for other in auxiliary]) for one in auxiliary]
    best = auxiliary[int(np.argmax(means))]
    for originals in (some(4), torch.zeros(2, 3, 8, 8)):
        assert torch.equal(single_guess(originals, auxiliary), best.expand_as(originals))


def test_the_single_guess_is_chosen_among_so_many_auxiliary_images_only(monkeypatch):
    levels = torch.tensor([0.0, 1.0, 0.5, 0.5, 0.5])[:, None, None, None].expand(5, 3, 8, 8)
    assert (single_guess(some(1), levels) == 0.5).all()
    monkeypatch.setattr(pictures, "COMPARED", 2)
    assert (single_guess(some(1), levels) == 0.0).all()


def test_the_single_guess_is_never_nearer_than_the_image_that_the_oracle_picks():
    originals, auxiliary = some(9), some(40, seed=1)
    nearest = paired_psnr(originals, oracle_guess(originals, auxiliary))
    assert (paired_psnr(originals, single_guess(originals, auxiliary)) <= nearest).all()


def test_others_are_the_images_that_no_known_one_claims():
    x = some(4)
    blurred = 0.9 * x + 0.05
    assert others(x[:2], blurred, 2).tolist() == [2, 3]
    assert others(x[[3, 1]], blurred, 2).tolist() == [0, 2]
    assert others(x, blurred[:2], 5).tolist() == []  # nothing that is not known
    assert others(x[:2], some(3, seed=1), 3).tolist() == [0, 1, 2]  # nothing alike, and room for all
    assert others(x[:0], blurred, 3).tolist() == [0, 1, 2]

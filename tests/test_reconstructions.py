import dataclasses

import numpy as np
import pytest
import torch
from cases import question_about, truth_of
from conftest import SHAPE, make_split
from PIL import Image

from glasshouse.auditing.gallery import save_pictures
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions, ranked

SECONDS = {"offline": 12.5, "online": 0.25}


def judged(evidence, split=None):
    """What the auditor makes of the evidence, who knows what the clients of `split` hold."""
    split = split or make_split()
    question = question_about(split.images("test"), auxiliary=split.images("auxiliary"))
    return evidence.judge(dataclasses.replace(question, truth=truth_of(split)))


def found(x, clients=(0, 1, 2), note=None, split=None):
    judgement = judged(Reconstructions((Rebuilt(x, clients),), **SECONDS, note=note), split)
    return {score.metric: score for score in judgement.scores}


def images_of(*clients, split=None):
    split = split or make_split()
    return torch.cat([split.client(k).x for k in clients])


def decibels(one, other):
    return -10 * (one - other).double().square().mean((1, 2, 3)).log10()


def test_the_clients_own_images_in_any_order_are_all_recovered():
    x = images_of(0, 1, 2)
    scores = found(x[torch.randperm(len(x))])
    rate = scores["recovery-rate"].estimate
    assert (rate.value, rate.high, rate.n) == (1.0, 1.0, 60)
    assert rate.low == pytest.approx(0.025 ** (1 / 60))
    for metric in ("psnr", "psnr-of-recovered"):
        assert scores[metric].estimate.value == 100.0
    assert scores["ssim"].estimate.value == pytest.approx(1.0)


def test_only_the_images_of_the_clients_named_count():
    scores = found(images_of(2), clients=(2,))
    assert scores["recovery-rate"].estimate.value == 1.0
    assert scores["recovery-rate"].estimate.n == 10
    assert found(images_of(1)[:10], clients=(2,))["recovery-rate"].estimate.value < 1.0


def test_samples_without_an_image_count_as_grey_in_every_mean_over_all():
    x = images_of(0, 1, 2)
    scores = found(x[:15])
    grey = decibels(x[15:], torch.tensor(0.5))
    assert grey.max() < 18
    assert scores["recovery-rate"].estimate.value == 15 / 60
    assert scores["psnr"].estimate.value == pytest.approx((15 * 100 + grey.sum().item()) / 60)
    assert scores["psnr-of-recovered"].estimate.value == 100.0
    assert scores["psnr-of-recovered"].estimate.n == 15


def test_success_begins_at_18_decibels():
    split = make_split()
    pool = dataclasses.replace(split.pool, x=torch.zeros_like(split.pool.x))
    black = dataclasses.replace(split, pool=pool)
    at_threshold = torch.full((60, *SHAPE), 10 ** (-18 / 20), dtype=torch.float64)
    assert found(at_threshold * 0.9999, split=black)["recovery-rate"].estimate.value == 1.0
    assert found(at_threshold * 1.0001, split=black)["recovery-rate"].estimate.value == 0.0


def test_a_few_exact_copies_show_where_similar_images_hide_them():
    split = make_split()
    alike = dataclasses.replace(split.pool, x=0.25 + 0.5 * split.pool.x)
    split = dataclasses.replace(split, pool=alike)
    scores = found(images_of(0, split=split)[:6], split=split)
    exact = scores["near-exact-rate"]
    assert scores["recovery-rate"].chance == 1.0
    assert (exact.estimate.value, exact.chance) == (6 / 60, 0.0)
    assert exact.estimate.low > 0


def test_the_blind_guess_is_the_nearest_auxiliary_image_on_the_same_samples():
    split = make_split()
    originals, auxiliary = images_of(0, 1), split.images("auxiliary").x
    nearest = [decibels(original[None], auxiliary).max().item() for original in originals]
    scores = found(torch.empty(0, *SHAPE), clients=(0, 1))
    assert scores["psnr"].chance == pytest.approx(np.mean(nearest))
    assert scores["recovery-rate"].chance == np.mean([one >= 18 for one in nearest])


def test_an_attack_that_only_shows_auxiliary_images_does_not_beat_the_blind_guess():
    split = make_split()
    scores = found(split.images("auxiliary").x)
    for metric in ("recovery-rate", "psnr"):
        assert scores[metric].estimate.value <= scores[metric].chance


def test_without_auxiliary_images_the_blind_guess_is_grey():
    split = dataclasses.replace(make_split(), auxiliary=np.empty(0, dtype=np.int64))
    scores = found(torch.empty(0, *SHAPE), split=split)
    assert scores["psnr"].chance == pytest.approx(scores["psnr"].estimate.value)


def test_nothing_returned_scores_nothing_and_says_why():
    scores = found(torch.empty(0, *SHAPE), note="too few clients were left")
    rate = scores["recovery-rate"].estimate
    assert (rate.value, rate.low, rate.n, rate.note) == (0.0, 0.0, 60, "too few clients were left")
    assert rate.high == pytest.approx(1 - 0.025 ** (1 / 60))
    mean = scores["psnr-of-recovered"].estimate
    assert mean.value is None
    assert mean.note == "no image reached 18 dB (too few clients were left)"


def test_the_seconds_of_both_phases_are_told_as_they_are():
    scores = found(images_of(0, 1, 2))
    for metric, seconds in (("offline-seconds", 12.5), ("online-seconds", 0.25)):
        estimate = scores[metric].estimate
        assert (estimate.value, estimate.low, estimate.high, estimate.n) == (seconds, None, None, 60)
        assert scores[metric].chance is None


@pytest.mark.parametrize(
    ("x", "complaint"),
    [
        (torch.rand(61, *SHAPE), "61 images for 60 samples"),
        (torch.rand(5, 3, 8, 8), "of the samples' shape"),
        (torch.rand(5, *SHAPE) + 0.5, r"in \[0, 1\]"),
        (torch.full((5, *SHAPE), float("nan")), r"in \[0, 1\]"),
    ],
)
def test_what_cannot_be_the_samples_is_refused(x, complaint):
    with pytest.raises(CannotRun, match=complaint):
        found(x)


def shown(x, folder, clients=(0, 1, 2)):
    return save_pictures(
        judged(Reconstructions((Rebuilt(x, clients),), **SECONDS)).pictures, folder, "rebuilt"
    )


def test_the_gallery_shows_the_best_the_median_and_the_worst_beside_their_originals(tmp_path):
    x = images_of(0, 1, 2)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) - 0.5
    steps = torch.linspace(0, 1, 60)[:, None, None, None]
    entries = shown((x + steps * noise).clamp(0, 1), tmp_path)
    captions = [entry.caption.split(" dB, ") for entry in entries]
    assert [rank for _, rank in captions] == ["best"] * 3 + ["median"] * 3 + ["worst"] * 3
    values = [float(value) for value, _ in captions]
    assert values == sorted(values, reverse=True)
    assert values[0] == 100.0
    best = entries[0]
    for key in ("original", "result"):
        assert (tmp_path / getattr(best, key)).is_file()
    one, other = (np.asarray(Image.open(tmp_path / getattr(best, key))) for key in ("original", "result"))
    assert np.array_equal(one, other)
    for value, entry in zip(values, entries):
        said = "recovered: 18 dB or more" if value >= 18 else "not recovered: below 18 dB"
        assert entry.note == said


def test_the_gallery_counts_samples_for_which_nothing_was_returned(tmp_path):
    entries = shown(images_of(0, 1, 2)[:20], tmp_path)
    assert [entry.note for entry in entries[:3]] == ["recovered: 18 dB or more"] * 3
    assert {entry.note for entry in entries[3:]} == {"nothing was returned for it; grey stands in"}
    grey = np.asarray(Image.open(tmp_path / entries[-1].result))
    assert (grey == 128).all()


def test_where_no_image_was_returned_there_is_nothing_to_show(tmp_path):
    assert shown(torch.empty(0, *SHAPE), tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", range(1, 30))
def test_no_sample_is_shown_twice_and_both_ends_are_shown(count):
    psnr = np.random.default_rng(count).permutation(count).astype(float)
    chosen = ranked(psnr)
    ranks = list(chosen.values())
    assert psnr[next(iter(chosen))] == count - 1
    assert count == 1 or psnr[list(chosen)[-1]] == 0
    assert len(chosen) == (9 if count >= 9 else 6 if count >= 6 else min(count, 3))
    assert ranks == sorted(ranks, key=["best", "median", "worst"].index)
    assert list(psnr[list(chosen)]) == sorted(psnr[list(chosen)], reverse=True)

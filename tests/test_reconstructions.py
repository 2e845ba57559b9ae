import dataclasses

import numpy as np
import pytest
import torch
from cases import question_about, truth_of
from conftest import SHAPE, make_split
from PIL import Image

from glasshouse.auditing.gallery import save_pictures
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions, Snapshot
from glasshouse.evidence.reconstruction_views import ranked

SECONDS = {"offline": 12.5, "online": 0.25}


def judged(evidence, split=None):
    """What the auditor makes of the evidence, who knows what the clients of `split` hold."""
    split = split or make_split()
    question = question_about(split.images("test"), auxiliary=split.images("auxiliary"))
    return evidence.judge(dataclasses.replace(question, truth=truth_of(split)))


def found(x, clients=(0, 1, 2), note=None, split=None):
    return found_in(Rebuilt(x, clients), note=note, split=split)


def found_in(*parts, note=None, split=None):
    judgement = judged(Reconstructions(parts, **SECONDS, note=note), split)
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


def test_chance_is_the_nearest_auxiliary_image_on_the_same_samples():
    split = make_split()
    originals, auxiliary = images_of(0, 1), split.images("auxiliary").x
    nearest = [decibels(original[None], auxiliary).max().item() for original in originals]
    scores = found(torch.empty(0, *SHAPE), clients=(0, 1))
    assert scores["psnr"].chance == pytest.approx(np.mean(nearest))
    assert scores["recovery-rate"].chance == np.mean([one >= 18 for one in nearest])


def test_an_attack_that_only_shows_auxiliary_images_does_not_beat_the_oracle_that_picks_them():
    split = make_split()
    scores = found(split.images("auxiliary").x)
    for metric in ("recovery-rate", "psnr"):
        assert scores[metric].estimate.value <= scores[metric].chance


def test_without_auxiliary_images_every_guess_is_grey_and_says_so():
    split = dataclasses.replace(make_split(), auxiliary=np.empty(0, dtype=np.int64))
    scores = found(torch.empty(0, *SHAPE), split=split)
    grey = scores["psnr"].estimate.value
    assert scores["psnr"].chance == pytest.approx(grey)
    for guess in ("mean-image", "single-guess"):
        estimate = scores[f"{guess}-psnr"].estimate
        assert estimate.value == pytest.approx(grey)
        assert "grey stands in" in estimate.note
    assert "grey stands in" in scores["recovery-rate"].estimate.note


def test_blind_guesses_are_scored_on_the_same_samples_and_know_none_of_them():
    split = make_split()
    originals, auxiliary = images_of(0, 1), split.images("auxiliary").x
    means = [
        np.mean([min(100.0, decibels(one[None], x[None]).item()) for x in auxiliary]) for one in auxiliary
    ]
    scores = found(torch.empty(0, *SHAPE), clients=(0, 1))
    for name, image in (("mean-image", auxiliary.mean(0)), ("single-guess", auxiliary[np.argmax(means)])):
        reached = decibels(originals, image)
        psnr, rate = scores[f"{name}-psnr"], scores[f"{name}-recovery-rate"]
        assert psnr.estimate.value == pytest.approx(reached.mean().item())
        assert rate.estimate.value == (reached >= 18).double().mean().item()
        assert (psnr.chance, rate.chance, rate.estimate.n) == (None, None, len(originals))


def test_blind_guesses_do_not_depend_on_the_attack():
    guesses = (
        "mean-image-psnr",
        "mean-image-recovery-rate",
        "single-guess-psnr",
        "single-guess-recovery-rate",
    )
    none, all_of_them = found(torch.empty(0, *SHAPE)), found(images_of(0, 1, 2))
    assert [none[guess] for guess in guesses] == [all_of_them[guess] for guess in guesses]


def test_the_most_exposed_image_is_the_one_that_came_nearest_and_has_no_interval():
    x = images_of(0, 1, 2)
    error = torch.linspace(0.01, 0.2, 60, dtype=torch.float64)[:, None, None, None]
    moved = torch.where(x > 0.5, x - error, x + error)
    split = make_split()
    worst = found(moved, split=split)["most-exposed-psnr"]
    assert worst.estimate.value == pytest.approx(40.0, abs=1e-4)
    assert (worst.estimate.low, worst.estimate.high, worst.estimate.n) == (None, None, 60)
    assert "maximum" in worst.estimate.note
    nearest = [decibels(one[None], split.images("auxiliary").x).max().item() for one in x]
    assert worst.chance == pytest.approx(max(nearest))


def test_labels_are_compared_as_multisets_and_samples_without_a_label_count_as_wrong():
    split = make_split()
    y = split.client(2).y
    assert len(y) == 10
    none = torch.empty(0, *SHAPE)
    held = torch.bincount(y, minlength=split.pool.classes)
    wrong = y.clone()
    wrong[0] = next(c for c in range(split.pool.classes) if held[c] == 0 or c != y[0])
    right = 10 - int((torch.bincount(wrong, minlength=split.pool.classes) - held).clamp(min=0).sum())
    for labels, hits in ((y.flip(0), 10), (y[:4], 4), (wrong, right), (y[:0], 0)):
        estimate = found_in(Rebuilt(none, (2,), labels))["label-accuracy"].estimate
        assert (estimate.value, estimate.n) == (hits / 10, 10)
    assert found_in(Rebuilt(none, (2,), y))["label-accuracy"].estimate.low == pytest.approx(0.025 ** (1 / 10))


def test_labels_of_one_part_do_not_stand_for_those_of_another():
    split = make_split()
    pool = dataclasses.replace(split.pool, y=torch.zeros_like(split.pool.y))
    pool.y[torch.from_numpy(split.clients[2])] = 1
    split = dataclasses.replace(split, pool=pool)
    swapped = [
        Rebuilt(torch.empty(0, *SHAPE), (client,), torch.full((10,), label))
        for client, label in ((1, 1), (2, 0))
    ]
    assert found_in(*swapped, split=split)["label-accuracy"].estimate.value == 0.0


def test_only_parts_with_labels_count_in_the_label_accuracy():
    split = make_split()
    none = torch.empty(0, *SHAPE)
    assert "label-accuracy" not in found(none)
    scores = found_in(Rebuilt(none, (2,), split.client(2).y), Rebuilt(none, (0,)))
    assert (scores["label-accuracy"].estimate.value, scores["label-accuracy"].estimate.n) == (1.0, 10)


def test_the_blind_guess_of_labels_names_classes_as_often_as_they_occur_among_the_auxiliary_images():
    split = make_split()
    y = split.pool.y.clone()
    auxiliary, held = (torch.from_numpy(where) for where in (split.auxiliary, split.clients[2]))
    y[auxiliary] = 0
    y[auxiliary[: len(auxiliary) // 4]] = 1
    y[held] = torch.tensor([0] * 5 + [1] * 5)
    split = dataclasses.replace(split, pool=dataclasses.replace(split.pool, y=y))
    ones = len(auxiliary) // 4 / len(auxiliary) * 10
    score = found_in(Rebuilt(torch.empty(0, *SHAPE), (2,), y[held]), split=split)["label-accuracy"]
    assert score.chance == pytest.approx((5 + round(ones)) / 10)
    assert score.chance < score.estimate.value == 1.0


@pytest.mark.parametrize(
    "labels", [torch.zeros(11, dtype=torch.long), torch.tensor([99]), torch.tensor([-1]), torch.zeros(10)]
)
def test_what_cannot_be_the_labels_is_refused(labels):
    with pytest.raises(CannotRun, match="up to 10 labels from 0 to"):
        found_in(Rebuilt(torch.empty(0, *SHAPE), (2,), labels))


def test_images_attacked_in_two_rounds_make_nothing_surer():
    x = images_of(2)
    part = Rebuilt(torch.cat([x[:4], 0.6 * x[4:]]), (2,), make_split().client(2).y)
    once, twice = found_in(part), found_in(part, dataclasses.replace(part, round=5))
    for metric in ("recovery-rate", "psnr", "ssim", "label-accuracy", "mean-image-psnr", "psnr-of-recovered"):
        one, two = once[metric].estimate, twice[metric].estimate
        assert one.n == two.n
        assert (one.value, one.low, one.high) == pytest.approx((two.value, two.low, two.high))
    assert once["most-exposed-psnr"] == twice["most-exposed-psnr"]


def test_an_image_of_one_part_does_not_stand_for_a_sample_of_another():
    scores = found_in(Rebuilt(images_of(2), (1,)), Rebuilt(torch.empty(0, *SHAPE), (2,)))
    assert scores["near-exact-rate"].estimate.value == 0.0


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


def black(value, count=10):
    """Images that are off by `value` from a black one: -20 log10 of it in dB."""
    return torch.full((count, *SHAPE), value, dtype=torch.float64)


def course_of(*parts):
    split = make_split()
    dark = dataclasses.replace(split.pool, x=torch.zeros_like(split.pool.x))
    return judged(Reconstructions(parts, **SECONDS), dataclasses.replace(split, pool=dark)).exhibits.course


def followed(*stages, clients=(2,), count=10):
    snapshots = [
        Snapshot(step, seconds, objective, black(error, count)) for step, seconds, objective, error in stages
    ]
    return Rebuilt(black(stages[-1][3], count), clients, snapshots=tuple(snapshots))


def test_the_course_holds_the_mean_psnr_of_every_snapshot():
    points = course_of(followed((0, 0.0, 8.0, 0.5), (10, 1.0, 2.0, 0.1), (20, 2.0, 1.0, 0.01)))
    assert [point.step for point in points] == [0, 10, 20]
    assert [point.psnr for point in points] == pytest.approx([-20 * np.log10(0.5), 20.0, 40.0])
    assert [(point.seconds, point.objective) for point in points] == [(0.0, 8.0), (1.0, 2.0), (2.0, 1.0)]
    assert {(point.updates, point.n) for point in points} == {(1, 10)}
    assert {(point.chance, point.mean_image) for point in points} == {(100.0, 100.0)}


def test_an_update_that_stopped_early_keeps_what_it_had_and_none_is_drawn_before_all_have_begun():
    short = followed((5, 1.0, 4.0, 0.1))
    long = followed((0, 0.0, 9.0, 1.0), (5, 1.0, 4.0, 0.1), (10, 3.0, 2.0, 0.01))
    points = course_of(short, long)
    assert [point.step for point in points] == [5, 10]
    assert [point.psnr for point in points] == pytest.approx([20.0, 30.0])
    assert [(point.seconds, point.objective) for point in points] == [(1.0, 4.0), (2.0, 3.0)]
    assert {(point.updates, point.n) for point in points} == {(2, 20)}


def test_every_sample_weighs_the_same_in_the_course_and_parts_without_snapshots_not_at_all():
    small, large = make_split().clients[2], make_split().clients[0]
    points = course_of(
        followed((0, 0.0, 1.0, 0.1)),
        followed((0, 0.0, 1.0, 0.01), clients=(0,), count=len(large)),
        Rebuilt(black(1.0, 1), (1,)),
    )
    mean = (20 * len(small) + 40 * len(large)) / (len(small) + len(large))
    assert [point.psnr for point in points] == pytest.approx([mean])
    assert (points[0].updates, points[0].n) == (2, len(small) + len(large))


def test_an_attack_that_diverged_is_followed_as_if_its_pixels_were_cut_to_the_range():
    wild = torch.full((10, *SHAPE), 7.0)
    lost = torch.full((10, *SHAPE), float("nan"))
    snapshots = tuple(Snapshot(step, 0.0, float("inf"), x) for step, x in enumerate((wild, lost)))
    points = course_of(Rebuilt(black(0.0), (2,), snapshots=snapshots))
    assert [point.psnr for point in points] == pytest.approx([0.0, -20 * np.log10(0.5)])
    assert [point.objective for point in points] == [None, None]


def test_without_snapshots_there_is_no_course():
    assert course_of(Rebuilt(black(0.1), (2,))) == ()


def test_snapshots_of_another_shape_are_refused():
    odd = Snapshot(0, 0.0, 0.0, torch.zeros(10, 3, 4, 4))
    with pytest.raises(CannotRun, match="a snapshot holds"):
        found_in(Rebuilt(images_of(2), (2,), snapshots=(odd,)))


def test_of_several_updates_the_gallery_says_which_one_a_sample_comes_from(tmp_path):
    parts = (Rebuilt(images_of(2), (2,), round=0), Rebuilt(0.5 * images_of(0, 1)[:40], (0, 1), round=4))
    pictures = judged(Reconstructions(parts, **SECONDS)).pictures
    assert pictures[0].caption == "100.0 dB, best, round 1, client 2"
    assert pictures[-1].caption.endswith("dB, worst, round 5, sum of 2 clients")

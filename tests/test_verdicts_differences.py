"""What a difference of two sides is, how it is paired, and what it shows."""

import dataclasses

import numpy as np
import pytest
from report_runs import a_row, measured

from glasshouse.exhibits import Records
from glasshouse.findings import from_row
from glasshouse.measures.comparing import auc_difference, share_difference
from glasshouse.measures.estimate import Estimate
from glasshouse.verdicts.differences import Difference, Side, difference


def side(name, records=None, **row):
    """One side with one seed, or with a seed for each of the records."""
    kept = dict(enumerate(records or []))
    rows = [from_row(a_row(attack=name, seed=seed, **row)) for seed in (kept or {0: None})]
    return Side(name, rows, kept)


def table(name, **columns):
    return Records(table=name, columns=columns)


def membership(rng, shift=0.0, order=None):
    member = np.arange(60) < 30
    columns = {"record": np.arange(60), "member": member}
    columns["score"] = rng.normal(size=60) + (1 + shift) * member
    columns["decision"] = columns["score"] > 0.5
    order = np.arange(60) if order is None else order
    return table("membership", **{key: column[order] for key, column in columns.items()})


def test_a_paired_difference_is_the_second_less_the_first():
    a, b = membership(np.random.default_rng(0)), membership(np.random.default_rng(1), 0.5)
    found = difference(side("a", [a]), side("b", [b]))
    expected = auc_difference(b["score"], a["score"], a["member"])
    assert (found.estimate, found.unpaired) == (expected, "")


def test_the_order_in_which_records_were_asked_about_does_not_matter():
    rng = np.random.default_rng(0)
    a, b = membership(rng), membership(np.random.default_rng(1), 0.5)
    shuffled = membership(np.random.default_rng(1), 0.5, order=rng.permutation(60))
    first, *others = (side(name, [kept]) for name, kept in (("a", a), ("b", b), ("b", shuffled)))
    assert difference(first, others[0]).estimate == difference(first, others[1]).estimate


def test_over_seeds_it_is_the_mean_and_covers_how_far_the_seeds_lie_apart():
    rng = np.random.default_rng(3)
    firsts = [membership(rng) for _ in range(3)]
    seconds = [membership(rng, shift) for shift in (0.0, 0.5, 2.0)]
    found = difference(side("a", firsts), side("b", seconds))
    each = [auc_difference(b["score"], a["score"], a["member"]) for a, b in zip(firsts, seconds)]
    assert found.value == pytest.approx(np.mean([one.value for one in each]))
    assert found.estimate.n == 180
    assert found.high - found.low > np.ptp([one.value for one in each]) / 2


def test_seeds_that_ask_about_the_same_records_do_not_narrow_a_difference():
    a, b = membership(np.random.default_rng(0)), membership(np.random.default_rng(1), 0.5)
    once = difference(side("a", [a]), side("b", [b]))
    sides = [
        dataclasses.replace(side(name, [kept] * 3), same_records=True) for name, kept in (("a", a), ("b", b))
    ]
    found = difference(*sides)
    assert (found.low, found.high) == pytest.approx((once.low, once.high))
    assert (found.estimate.n, found.first.n) == (60, once.first.n)


def test_robust_accuracy_is_compared_at_the_largest_eps_and_clean_accuracy_without_attack():
    eps = np.repeat([0.0, 0.1, 0.2], 20)
    record = np.tile(np.arange(20), 3)
    hits = [np.random.default_rng(seed).random(60) < 0.7 for seed in (0, 1)]
    sides = [table("evasion", record=record, eps=eps, hit=hit) for hit in hits]
    for metric, at in (("robust-accuracy", 0.2), ("clean-accuracy", 0.0)):
        one, two = (side(name, [kept], family="evasion", metric=metric) for name, kept in zip("ab", sides))
        expected = share_difference(hits[1][eps == at], hits[0][eps == at])
        assert difference(one, two).estimate == expected


def test_rebuilt_images_are_compared_one_by_one():
    record, low, high = np.arange(6), np.full(6, 12.0), np.array([12.0, 20, 20, 31, 31, 12])
    a, b = (table("reconstruction", record=record, psnr=psnr, returned=psnr > 12) for psnr in (low, high))

    def moved(metric):
        sides = [side("a", [a], family="reconstruction", metric=metric)]
        sides.append(side("b", [b], family="reconstruction", metric=metric))
        return difference(*sides)

    assert moved("psnr").value == pytest.approx((high - low).mean())
    assert moved("recovery-rate").value == pytest.approx(4 / 6)
    assert moved("near-exact-rate").value == pytest.approx(2 / 6)


def test_unpaired_sides_are_combined_as_if_independent():
    one, two = side("a", value=0.5, low=0.46, high=0.53), side("b", value=0.6, low=0.57, high=0.64)
    found = difference(one, two)
    assert found.unpaired == "no scores of single records are kept"
    assert (found.value, found.low, found.high) == pytest.approx(
        (0.1, 0.1 - np.hypot(0.03, 0.03), 0.1 + np.hypot(0.04, 0.04))
    )


def test_what_has_no_value_has_no_difference_and_its_reason():
    missing = side("b", value=None, low=None, high=None, reason="too few records")
    found = difference(side("a"), missing)
    assert (found.value, found.estimate.note) == (None, "too few records")
    assert found.verdict() == "not judged"


def of(value, low, high, **row):
    return Difference(measured(**row), measured(**row), ("a", "b"), Estimate(value, low, high, 100))


ROBUST = {"family": "evasion", "adversary": "owner", "metric": "robust-accuracy"}
ACCURACY = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}


@pytest.mark.parametrize(("row", "up"), [({}, "more"), (ROBUST, "less"), (ACCURACY, "more")])
def test_a_verdict_goes_in_the_direction_that_leaks(row, up):
    down = {"more": "less", "less": "more"}[up]
    assert of(0.2, 0.1, 0.3, **row).verdict() == up
    assert of(-0.2, -0.3, -0.1, **row).verdict() == down
    assert of(0.2, -0.1, 0.5, **row).verdict() == "no difference shown"
    assert of(0.2, 0.2, None, **row).verdict() == "not judged"


def test_a_verdict_among_many_needs_a_wider_interval():
    # Half the width is 1.96 standard errors; among 20 differences it has to be 3.02 of them.
    near, far = of(0.29, 0.29 - 0.196, 0.29 + 0.196), of(0.31, 0.31 - 0.196, 0.31 + 0.196)
    assert (near.verdict(), near.verdict(20)) == ("more", "may be luck")
    assert (far.verdict(), far.verdict(20)) == ("more", "more")

"""What the study ats says to claims about models and scores, on made-up findings."""

import pytest
from ats_findings import STRONG, accurate, attacked, drawn, row, table_1, trained, verdict

from glasshouse.studies.ats.cells import ACCURACY, OVERLAP


def test_what_a_policy_costs_is_open_where_there_is_little_accuracy_to_lose():
    """The papers print 0.78 without a policy."""
    found = verdict([*trained(accuracy=0.3, hybrid=0.0), *table_1()], 4)
    assert found.verdict == "open"
    assert "less than 95% of the accuracy that the papers print" in found.reason


@pytest.mark.parametrize(("cost", "expected"), [(0.01, "holds"), (0.05, "refuted"), (0.02, "not shown")])
def test_a_cost_under_two_points_is_negligible(cost, expected):
    found = verdict([*trained(hybrid=cost), *table_1()], 4)
    assert found.verdict == expected
    assert f"{cost:+.3f} [" in found.reason
    assert "n = 5,000" in found.reason


@pytest.mark.parametrize(("hybrid", "expected"), [(0.705, "holds"), (0.65, "refuted"), (0.68, "not shown")])
def test_a_hybrid_may_be_two_points_less_accurate_than_a_policy_alone(hybrid, expected):
    findings = [
        *trained(),
        *table_1(),
        *attacked("table-1/cifar100/convnet-16/7-4-15", STRONG, 0.0),
        accurate("7-4-15", 0.70),
        accurate("hybrid", hybrid),
    ]
    assert verdict(findings, 13).verdict == expected


@pytest.mark.parametrize(("cropped", "without", "expected"), [
    (0.77, 0.60, "holds"), (0.77, 0.75, "refuted"), (0.77, 0.67, "not shown"), (0.40, 0.20, "open"),
])  # fmt: skip
def test_what_crop_and_flip_bring_shows_once_training_with_them_is_at_rest(cropped, without, expected):
    cell = "crop-and-flip/cifar100/convnet-16/crop-and-flip"
    models = [accurate("crop-and-flip", cropped), accurate("none", without)]
    assert verdict([*models, *attacked(cell, STRONG, 0.0)], 14).verdict == expected


@pytest.mark.parametrize(("found", "low", "high", "expected"), [
    (5, 4, 5, "holds"), (1, 0, 2, "refuted"), (0, 0, 1, "refuted"), (3, 2, 4, "not shown"),
])  # fmt: skip
@pytest.mark.parametrize(("claim", "data"), [(6, "cifar100"), (9, "tiny-imagenet-20")])
def test_the_best_five_are_found_or_not(claim, data, found, low, high, expected):
    cell = f"figure-8/{data}/convnet-16/library"
    overlap = row(cell, OVERLAP, found, low=low, high=high, n=24)
    accuracy = row(cell, ACCURACY, 0.3, low=0.26, high=0.34, chance=0.05)
    assert verdict([accuracy, overlap], claim).verdict == expected
    untrained = row(cell, ACCURACY, 0.05, low=0.04, high=0.06, chance=0.05)
    assert verdict([untrained, overlap], claim).verdict == "open"


@pytest.mark.parametrize(("slope", "expected"), [(3.0, "holds"), (-0.5, "refuted"), (0.7, "not shown")])
def test_scores_are_correlated_if_the_interval_of_r_says_so(slope, expected):
    found = verdict(drawn(slope), 7)
    assert found.verdict == expected
    assert "n = 40" in found.reason
    few = verdict(drawn(slope, count=6), 7)
    assert (few.verdict, few.reason) == ("open", "fewer than 10 policies are done")


def test_a_correlation_is_open_where_its_search_shows_nothing_or_its_psnr_is_noise():
    assert verdict(drawn(3.0, untouched=0.2), 7).verdict == "open"
    noisy = verdict(drawn(0.0, noise=30.0), 7)
    assert noisy.verdict == "open"
    assert "reliability 0." in noisy.reason

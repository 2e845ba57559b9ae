"""Made-up findings with known right answers: outcomes, severity, and every metric in its own direction."""

import doctest
import inspect
from typing import Any

import pytest
from report_runs import a_row

from glasshouse.auditing import grants
from glasshouse.evidence import evidence
from glasshouse.federation import federation
from glasshouse.findings import from_row
from glasshouse.report.words.leaks import worth_sentence
from glasshouse.verdicts import outcome as outcomes
from glasshouse.verdicts.answers import answers_by_adversary
from glasshouse.verdicts.measure import Measure, reach
from glasshouse.verdicts.outcome import degree, outcome, outcome_of, severity, shut_out, strongest
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.tradeoff import Tradeoff, Worth, tradeoffs, worth


def measured(**changes: Any) -> Measure:
    [measure] = pooled([from_row(a_row(**changes))])
    return measure


def missing(reason: str, **changes: Any) -> Measure:
    nothing = {"metric": "not-applicable", "value": None, "low": None, "high": None, "chance": None, "n": 0}
    return measured(**nothing, reason=reason, **changes)


EVASION = {"family": "evasion", "adversary": "owner", "attack": "pgd", "metric": "robust-accuracy"}
UTILITY = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}


@pytest.mark.parametrize(("value", "low", "high", "word"), [
    (0.6, 0.55, 0.65, "leaks"),
    (0.52, 0.48, 0.56, "nothing shown"),
    (0.4, 0.35, 0.45, "nothing shown"),
    (0.6, None, None, "nothing shown"),
])  # fmt: skip
def test_an_interval_above_chance_leaks_and_no_other_does(value, low, high, word):
    assert outcome(measured(value=value, low=low, high=high)) == word


def test_what_could_not_be_tried_is_not_what_showed_nothing():
    adam = missing("updates of Adam are no gradients")
    nothing = measured(value=0.5, low=0.45, high=0.55)
    leaking = measured(value=0.6, low=0.55, high=0.65)
    assert outcome(adam) == "could not be tried"
    assert outcome_of([adam]) == "could not be tried"
    assert outcome_of([adam, nothing]) == "nothing shown"
    assert outcome_of([adam, nothing, leaking]) == "leaks"
    assert outcomes.reasons([adam, nothing, adam]) == ["updates of Adam are no gradients"]
    assert not shut_out(adam)
    assert shut_out(missing("every client refused the model: a layer copies its input"))


def test_reasons_of_those_that_are_kept_out_begin_as_they_are_given():
    given = "".join(inspect.getsource(module) for module in (federation, grants, evidence))
    assert all(words in given for words in (*outcomes.SHUT_OUT, outcomes.FAILED))


def test_an_adversary_none_of_whose_attacks_could_run_is_told_from_one_that_showed_nothing():
    server = {"adversary": "crafting server", "family": "reconstruction"}
    rows = [missing("updates of Adam are no gradients", **server), measured(value=0.5, low=0.45, high=0.55)]
    outsider, crafting = answers_by_adversary(rows)
    assert (outsider.outcome, crafting.outcome) == ("nothing shown", "could not be tried")
    assert crafting.reasons == ["updates of Adam are no gradients"]


@pytest.mark.parametrize(("changes", "word"), [
    ({"value": 0.53, "low": 0.51, "high": 0.55}, "slight"),
    ({"value": 0.70, "low": 0.65, "high": 0.75}, "moderate"),
    ({"value": 0.90, "low": 0.59, "high": 1.0}, "slight"),  # by what is shown, not by the point
    ({"value": 0.90, "low": 0.85, "high": 0.95}, "severe"),
    ({"value": 0.97, "low": 0.96, "high": 0.98}, "total"),
    ({"value": 0.50, "low": 0.45, "high": 0.55}, "none"),
    ({"value": 0.99, "low": None, "high": None}, "none"),
    ({"metric": "exact-counts", "value": 1.0, "low": 0.692, "high": 1.0, "chance": 0.0}, "total"),
    ({"metric": "exact-counts", "value": 0.9, "low": 0.692, "high": 1.0, "chance": 0.0}, "severe"),
    ({"metric": "exact-counts", "value": 1.0, "low": 0.3, "high": 1.0, "chance": 0.0}, "moderate"),
    ({"metric": "tpr-at-1%-fpr", "value": 0.03, "low": 0.02, "high": 0.05, "chance": 0.01}, "slight"),
    ({"metric": "tpr-at-1%-fpr", "value": 0.05, "low": 0.04, "high": 0.06, "chance": 0.01}, "moderate"),
    ({"metric": "tpr-at-1%-fpr", "value": 0.2, "low": 0.15, "high": 0.3, "chance": 0.01}, "severe"),
    ({"metric": "tpr-at-1%-fpr", "value": 0.98, "low": 0.95, "high": 1.0, "chance": 0.01}, "total"),
    ({"metric": "epsilon", "value": 0.6, "low": 0.6, "high": None, "chance": 0.0}, "slight"),
    ({"metric": "epsilon", "value": 3.5, "low": 3.5, "high": None, "chance": 0.0}, "severe"),
    ({"metric": "epsilon-delta-lower-bound", "value": 9.0, "low": 9.0, "high": None, "chance": 0.0}, "total"),
    ({"metric": "psnr", "value": 15.0, "low": 14.0, "high": 16.0, "chance": 12.0}, "slight"),
    ({"metric": "psnr", "value": 15.0, "low": 14.0, "high": 16.0, "chance": 17.0}, "none"),
    ({"metric": "psnr", "value": 26.0, "low": 25.0, "high": 27.0, "chance": 12.0}, "severe"),
    ({"metric": "psnr", "value": 40.0, "low": 35.0, "high": 45.0, "chance": 12.0}, "total"),
    ({"metric": "recovery-rate", "value": 0.05, "low": 0.02, "high": 0.1, "chance": 0.0}, "moderate"),
    ({"metric": "near-exact-rate", "value": 0.01, "low": 0.001, "high": 0.1, "chance": 0.0}, "moderate"),
    ({"metric": "made-up", "value": 7.0, "low": 6.0, "high": 8.0, "chance": 1.0}, "moderate"),
    (EVASION | {"value": 0.85, "low": 0.83, "high": 0.87, "chance": 0.95}, "slight"),
    (EVASION | {"value": 0.30, "low": 0.25, "high": 0.35, "chance": 0.95}, "severe"),
    (EVASION | {"value": 0.05, "low": 0.03, "high": 0.08, "chance": 0.95}, "total"),
    (EVASION | {"value": 0.30, "low": 0.25, "high": 0.35, "chance": 0.31}, "none"),
])  # fmt: skip
def test_severity_goes_by_what_is_shown_on_the_metrics_own_scale(changes, word):
    assert severity(measured(**changes)) == word


def test_other_ends_of_the_interval_may_be_worse():
    measure = measured(value=0.65, low=0.55, high=0.85)
    assert [severity(measure, end) for end in ("shown", "point", "possible")] == [
        "slight",
        "moderate",
        "severe",
    ]
    robust = measured(**EVASION, value=0.5, low=0.35, high=0.85, chance=0.9)
    assert [severity(robust, end) for end in ("shown", "point", "possible")] == [
        "slight",
        "moderate",
        "severe",
    ]


def test_a_degree_grows_with_the_leak_and_stays_in_its_range():
    degrees = [degree(measured(value=v / 100, low=v / 100, high=v / 100)) for v in range(101)]
    assert degrees == sorted(degrees)
    assert degrees[50] == 0
    assert degrees[100] == 4


def test_a_bound_from_one_side_speaks_for_both_ends():
    bound = measured(metric="epsilon", value=2.0, low=2.0, high=None, chance=0.0)
    assert degree(bound) == degree(bound, "possible") == 1.5
    assert degree(measured(low=None, high=None), "possible") is None


def test_the_strongest_attack_is_found_across_metrics_and_a_missing_one_only_where_all_are():
    auc = measured(value=0.55, low=0.52, high=0.58)
    labels = measured(
        metric="label-overlap", family="labels", attack="label-counts", value=0.95, low=0.9, high=1.0
    )
    gone = missing("no round was seen", attack="loss-trajectory")
    assert strongest([auc, labels, gone]) is labels
    assert strongest([gone]) is gone
    assert strongest([]) is None


def test_a_headline_leads_other_metrics_of_the_same_severity():
    auc = measured(value=0.53, low=0.51, high=0.55)
    epsilon = measured(metric="epsilon", value=0.9, low=0.9, high=None, chance=0.0)
    assert strongest([epsilon, auc]) is auc


def test_of_two_evasions_the_one_that_leaves_less_got_further_whatever_noise_leaves():
    weak = measured(**EVASION, value=0.4, low=0.35, high=0.45, chance=0.9)
    strong = measured(**EVASION, value=0.3, low=0.25, high=0.35, chance=0.5)
    assert reach(strong) > reach(weak)


def weighed(rows: list[dict[str, Any]]) -> tuple[Tradeoff, Worth]:
    [tradeoff] = tradeoffs(pooled(map(from_row, rows)))
    return tradeoff, worth(tradeoff)


def robust(
    defence: str, accuracy: float, value: float, chance: float, width: float = 0.04
) -> list[dict[str, Any]]:
    ends = {"low": value - width, "high": value + width}
    return [
        a_row(
            **UTILITY, defence=defence, value=accuracy, low=accuracy - 0.03, high=accuracy + 0.03, chance=0.1
        ),
        a_row(**EVASION, defence=defence, value=value, **ends, chance=chance, n=300),
    ]


def test_a_defence_that_lowers_robust_accuracy_is_not_recommended():
    """The chance level falls with accuracy, so the distance to it shrinks while the model gets worse."""
    tradeoff, found = weighed([*robust("none", 0.94, 0.205, 0.92), *robust("clipping", 0.78, 0.185, 0.7)])
    assert found.effect == "no effect shown"
    assert "lowers it most" not in worth_sentence(tradeoff)


def test_a_defence_that_leaves_nothing_to_fool_does_not_stop_evasion():
    _, found = weighed([*robust("none", 0.94, 0.5, 0.92), *robust("noise", 0.2, 0.18, 0.19)])
    assert found.effect == "makes it worse"


def test_a_defence_that_raises_robust_accuracy_helps():
    rows = [*robust("none", 0.94, 0.2, 0.92), *robust("a", 0.9, 0.5, 0.9), *robust("b", 0.9, 0.6, 0.9)]
    _, found = weighed([*rows, *robust("c", 0.5, 0.1, 0.4)])
    assert (found.effect, found.best.defence) == ("lowers", "b")


def test_robust_accuracy_that_comes_up_to_what_noise_leaves_is_stopped():
    _, found = weighed([*robust("none", 0.94, 0.2, 0.92), *robust("hard", 0.9, 0.88, 0.9)])
    assert (found.effect, found.best.defence) == ("stops", "hard")


def auc(
    defence: str, value: float | None, low: float | None, high: float | None, **changes: Any
) -> dict[str, Any]:
    return a_row(defence=defence, value=value, low=low, high=high, **changes)


def test_a_membership_leak_is_lowered_where_the_intervals_are_apart():
    rows = [auc("none", 0.9, 0.88, 0.92), auc("a", 0.85, 0.8, 0.9), auc("b", 0.7, 0.65, 0.75)]
    _, found = weighed(rows)
    assert (found.effect, found.best.defence) == ("lowers", "b")
    _, found = weighed(rows[:2])
    assert found.effect == "no effect shown"
    _, found = weighed([auc("none", 0.6, 0.58, 0.62), auc("a", 0.7, 0.65, 0.75)])
    assert found.effect == "makes it worse"


def test_a_wide_interval_around_a_higher_number_stops_nothing():
    _, found = weighed([auc("none", 0.6, 0.58, 0.62), auc("a", 0.62, 0.45, 0.79)])
    assert found.effect == "no effect shown"


def test_a_bound_from_below_that_falls_shows_no_effect():
    epsilon = {"metric": "epsilon", "chance": 0.0}
    _, found = weighed([auc("none", 3.0, 3.0, None, **epsilon), auc("a", 1.0, 1.0, None, **epsilon)])
    assert found.effect == "no effect shown"


def test_without_intervals_nothing_is_compared():
    _, found = weighed([auc("none", 0.9, 0.88, 0.92), auc("a", 0.5, None, None)])
    assert found.effect == "nothing compared"
    _, found = weighed([auc("none", 0.9, None, None), auc("a", 0.5, 0.45, 0.55)])
    assert found.effect == "not judged"


def test_the_docstrings_hold():
    assert doctest.testmod(outcomes).failed == 0

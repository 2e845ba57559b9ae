"""Made-up findings with known right decisions: the frontier, limits, and what to do."""

import doctest
from collections.abc import Iterable
from typing import Any

import pytest
from report_runs import a_row

from glasshouse.errors import BadInput
from glasshouse.findings import from_row
from glasshouse.verdicts import limits as limiting
from glasshouse.verdicts.decision import decide
from glasshouse.verdicts.frontier import cost, frontier
from glasshouse.verdicts.limits import DEFAULT, Limit, check, not_kept, read_limits
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.pooling import pooled

UTILITY = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}


def accuracy(defence: str, value: float, width: float = 0.02, **changes: Any) -> dict[str, Any]:
    ends = {"low": value - width, "high": value + width, "chance": 0.1, "n": 1000}
    return a_row(**UTILITY, defence=defence, value=value, **ends, **changes)


def leak(defence: str, value: float, width: float = 0.02, **changes: Any) -> dict[str, Any]:
    return a_row(
        **{"defence": defence, "value": value, "low": value - width, "high": value + width} | changes
    )


def untried(defence: str, reason: str, **changes: Any) -> dict[str, Any]:
    nothing = {"metric": "not-applicable", "value": None, "low": None, "high": None, "chance": None, "n": 0}
    return a_row(**{"defence": defence, **nothing, "reason": reason} | changes)


def of(*rows: dict[str, Any] | Iterable[dict[str, Any]]) -> list[Measure]:
    return pooled(map(from_row, rows))


def arms(**found: tuple[float, float]) -> list[dict[str, Any]]:
    """For each defence its accuracy and the outsider's AUC."""
    return [row for name, (acc, auc) in found.items() for row in (accuracy(name, acc), leak(name, auc))]


def test_a_defence_that_is_shown_better_in_something_and_worse_in_nothing_dominates():
    found = frontier(of(*arms(none=(0.9, 0.9), a=(0.9, 0.6), b=(0.7, 0.6), c=(0.7, 0.5))))
    assert {choice.defence: choice.dominated_by for choice in found.choices} == {
        "none": "a",
        "a": None,
        "b": "a",
        "c": None,
    }
    assert [choice.defence for choice in found.undominated] == ["a", "c"]


def test_overlapping_intervals_dominate_nothing():
    found = frontier(of(*arms(none=(0.9, 0.6), a=(0.91, 0.58))))
    assert all(choice.dominated_by is None for choice in found.choices)


def test_a_choice_names_the_strongest_attack_of_each_adversary_the_adaptive_one_where_that_is_worse():
    plain = leak("pruning", 0.55, attack="dlg", adversary="curious server")
    adaptive = leak("pruning", 0.85, attack="dlg(adaptive=True)", adversary="curious server")
    weak = leak("pruning", 0.53, attack="gap", adversary="outsider")
    [choice] = frontier(of(plain, adaptive, weak)).choices
    assert choice.leaks["curious server"].row.attack == "dlg(adaptive=True)"
    assert choice.leaks["outsider"].row.attack == "gap"


def test_defences_that_met_fewer_attacks_are_compared_by_the_attacks_they_share():
    rows = arms(none=(0.9, 0.55), a=(0.9, 0.55))
    strong = leak("none", 0.95, attack="lira")
    found = frontier(of(*rows, strong))
    assert all(choice.dominated_by is None for choice in found.choices)
    assert [choice.partial for choice in found.choices] == [False, True]


def test_evasion_is_no_leak_of_data():
    evasion = {"family": "evasion", "adversary": "owner", "attack": "pgd", "metric": "robust-accuracy"}
    measures = of(*arms(none=(0.9, 0.52)), leak("none", 0.1, chance=0.9, **evasion))
    assert list(frontier(measures).choices[0].leaks) == ["outsider"]
    assert decide(measures).action == "ship"
    asked = read_limits({"owner": {"robust-accuracy": 0.5}})
    assert decide(measures, asked).action == "stop"


def test_the_central_baseline_is_not_on_trial():
    measures = of(*arms(none=(0.9, 0.52)), accuracy("none", 0.99, strategy="central"))
    assert frontier(measures).choices[0].accuracy.value == 0.9


def test_the_cost_of_accuracy_has_an_interval_that_holds_that_of_both():
    found = frontier(of(*arms(none=(0.9, 0.6), a=(0.8, 0.6))))
    assert cost(found.base, found.choices[1]) == pytest.approx((0.1, 0.1 - 0.0283, 0.1 + 0.0283), abs=1e-4)


@pytest.mark.parametrize(("found", "limits", "action", "defence"), [
    ({"none": (0.9, 0.52), "a": (0.8, 0.5)}, {}, "ship", None),
    ({"none": (0.9, 0.9), "a": (0.85, 0.52), "b": (0.88, 0.53)}, {}, "defend", "b"),
    ({"none": (0.9, 0.9), "a": (0.6, 0.52)}, {}, "stop", None),  # 30 points are more than the usual ten
    ({"none": (0.9, 0.9), "a": (0.6, 0.52)}, {"everyone": "slight"}, "defend", "a"),
    ({"none": (0.9, 0.9), "a": (0.89, 0.88)}, {}, "stop", None),
    ({"none": (0.9, 0.9)}, {}, "stop", None),
    ({"none": (0.9, 0.9), "a": (0.85, 0.69)}, {"outsider": {"auc": 0.7}}, "cannot tell", None),
    ({"none": (0.9, 0.9), "a": (0.85, 0.69)}, {"outsider": {"auc": 0.7}, "end": "point"}, "defend", "a"),
    ({"none": (0.9, 0.71)}, {"outsider": {"auc": 0.7}, "end": "shown"}, "ship", None),
    ({"none": (0.9, 0.9), "a": (0.8, 0.6)}, {"outsider": {"auc": 0.7}, "accuracy": 0.05}, "stop", None),
])  # fmt: skip
def test_the_decision_is_the_known_right_one(found, limits, action, defence):
    decision = decide(of(*arms(**found)), read_limits(limits))
    assert (decision.action, decision.defence) == (action, defence)
    assert decision.headline.endswith(".")
    assert "\n" not in decision.headline + decision.why + decision.cost + decision.confidence


def test_a_decision_says_why_at_what_cost_and_how_sure():
    decision = decide(of(*arms(none=(0.9, 0.9), pruning=(0.85, 0.56))))
    assert decision.headline == "Switch on pruning."
    assert "90 of 100" in decision.why
    assert "severe" in decision.why
    assert "AUC 0.560 (0.540 to 0.580)" in decision.why
    assert decision.cost == "5.0 points of test accuracy (95% interval 2.2 to 7.8)."
    assert "One seed" in decision.confidence


def test_bytes_seconds_and_a_promise_are_said_where_they_were_measured():
    rows = arms(none=(0.9, 0.9), a=(0.85, 0.52))
    for defence, size, seconds in (("none", 100.0, 10.0), ("a", 200.0, 15.0)):
        for metric, value in (("bytes-up", size), ("training-seconds", seconds)):
            rows.append(leak(defence, value, **UTILITY | {"metric": metric}, low=None, high=None))
    spent = {"family": "privacy", "adversary": None, "attack": None, "metric": "epsilon-spent-record"}
    trust = "noise multiplier 1; trusting whoever sums the updates; delta is small"
    rows.append(leak("a", 2.5, **spent, low=None, high=None, chance=None, note=trust))
    decision = decide(of(*rows))
    assert "2.00 times the bytes sent and 1.50 times the seconds of training" in decision.cost
    assert "promises each record an epsilon of 2.500, trusting whoever sums the updates." in decision.why


def test_what_could_not_be_tried_is_told_and_blocks_only_limits_that_were_given():
    server = {"adversary": "crafting server", "attack": "mandrake", "family": "reconstruction"}
    measures = of(*arms(none=(0.9, 0.52)), untried("none", "the model has no linear layer", **server))
    decision = decide(measures)
    assert decision.action == "ship"
    assert "crafting server nothing could be tried" in decision.confidence
    assert decision.untried == ("Crafting server, mandrake: the model has no linear layer.",)
    table = {"everyone": "slight", "end": "shown"}
    assert decide(measures, read_limits(table)).action == "cannot tell"
    assert decide(measures, read_limits(table | {"untried": "accept"})).action == "ship"


def test_a_limit_that_no_attack_asked_about_is_not_kept():
    evasion = {"family": "evasion", "adversary": "owner", "attack": "pgd", "metric": "robust-accuracy"}
    fooled = of(accuracy("none", 0.9), leak("none", 0.1, chance=0.9, **evasion))
    for table, measures in (
        ({"everyone": "none"}, of(accuracy("none", 0.9))),
        ({"everyone": "none"}, fooled),
        ({"everyone": {"recovery-rate": 0.1}}, of(*arms(none=(0.9, 0.52)))),
    ):
        limits = read_limits(table)
        (one,) = check(measures, limits)
        assert (one.state, one.reason) == ("could not be tried", "no attack asked it")
        assert decide(measures, limits).action == "cannot tell"


def test_canaries_that_could_not_be_inserted_are_nobodys_leak():
    canary = {"adversary": "blind server", "attack": "canary-clients", "family": "canary-clients"}
    measures = of(
        *arms(none=(0.9, 0.52), a=(0.88, 0.51)), untried("none", "nothing bounds an update", **canary)
    )
    compared = frontier(measures)
    assert not any(choice.partial for choice in compared.choices)
    assert [one.limit.adversary for one in check(measures, read_limits({"everyone": "total"}))] == [
        "outsider"
    ] * 1


def test_an_adversary_that_is_kept_out_breaks_no_limit():
    server = {"adversary": "crafting server", "attack": "mandrake", "family": "reconstruction"}
    refused = untried(
        "vet", "the round failed: every client refused the model: a layer copies its input", **server
    )
    checks = check(of(leak("vet", 0.52), refused), read_limits({"everyone": "slight"}))
    assert [one.state for one in checks] == ["keeps", "keeps"]


def test_a_partial_choice_is_never_recommended():
    rows = arms(none=(0.9, 0.9), a=(0.9, 0.52))
    decision = decide(of(*rows, leak("none", 0.9, attack="lira")))
    assert decision.action == "cannot tell"
    assert decision.defence is None


def test_no_attack_at_all_tells_nothing():
    assert decide(of(accuracy("none", 0.9))).action == "cannot tell"
    assert decide([]).action == "cannot tell"


@pytest.mark.parametrize(("limit", "end", "state"), [
    ({"auc": 0.7}, "possible", "keeps"),
    ({"auc": 0.64}, "possible", "may break"),
    ({"auc": 0.64}, "shown", "keeps"),
    ({"auc": 0.59}, "point", "may break"),
    ({"auc": 0.55}, "shown", "breaks"),
    ({"membership": 0.55}, "possible", "breaks"),
    ({"membership": "slight"}, "shown", "keeps"),
    ({"membership": "slight"}, "possible", "may break"),
    ("moderate", "possible", "keeps"),
    ("none", "shown", "breaks"),
    ({"labels": "slight"}, "possible", "could not be tried"),
])  # fmt: skip
def test_the_chosen_end_of_the_interval_decides(limit, end, state):
    [one] = check(of(leak("none", 0.61, 0.05)), read_limits({"outsider": limit, "end": end}))
    assert one.state == state


def test_a_limit_on_a_metric_without_an_interval_is_judged_by_the_point_alone():
    measures = of(leak("none", 0.55, low=None, high=None))
    for end, state in (("possible", "cannot be judged"), ("shown", "cannot be judged"), ("point", "keeps")):
        [one] = check(measures, read_limits({"outsider": {"auc": 0.6}, "end": end}))
        assert one.state == state
    limits = read_limits({"outsider": {"auc": 0.6}})
    assert not_kept(check(measures, limits), limits)


def test_a_limit_below_is_one_from_below_for_metrics_that_fall():
    evasion = {"family": "evasion", "adversary": "owner", "attack": "pgd", "metric": "robust-accuracy"}
    measures = of(leak("none", 0.5, 0.05, chance=0.9, **evasion))
    states = [check(measures, read_limits({"owner": {"evasion": most}}))[0].state for most in (0.4, 0.5, 0.6)]
    assert states == ["keeps", "may break", "breaks"]
    assert str(Limit("owner", 0.4, "evasion")) == "owner, evasion: at least 0.4"


def test_adversaries_are_named_with_hyphens_or_blanks():
    assert read_limits({"curious-server": "slight"}) == read_limits({"curious server": "slight"})
    assert read_limits({}) is DEFAULT


@pytest.mark.parametrize(("table", "words"), [
    ({"outsidr": "slight"}, r"unknown adversary in limits 'outsidr'; did you mean 'outsider'\?"),
    ({"outsider": "sleight"}, r"unknown severity 'sleight'; did you mean 'slight'\?"),
    ({"outsider": {"aux": 0.6}}, r"limits.outsider: unknown metric or family 'aux'; did you mean 'auc'\?"),
    ({"outsider": {"test-accuracy": 0.6}}, r"unknown metric or family 'test-accuracy'"),
    ({"outsider": {"auc": "slight"}}, r"limits.outsider.auc = 'slight' is no number"),
    ({"outsider": {"auc": float("nan")}}, r"limits.outsider.auc = nan is no finite number"),
    ({"outsider": {"auc": True}}, r"is no finite number"),
    ({"outsider": 0.6}, r"limits.outsider = 0.6 is no limit; write a severity"),
    ({"outsider": {}}, r"is no limit"),
    ({"end": "possible"}, r"limits name no adversary"),
    ({"outsider": "slight", "end": "worst"}, r"unknown end of the interval 'worst'"),
    ({"outsider": "slight", "accuracy": 5}, r"limits.accuracy = 5 is no share of 1"),
    ({"outsider": "slight", "untried": True}, r"unknown word for what could not be tried 'True'"),
    ({"blind-server": "slight", "blind server": "none"}, r"limits name 'blind server' twice"),
])  # fmt: skip
def test_wrong_limits_are_one_line_with_the_remedy(table, words):
    with pytest.raises(BadInput, match=words) as caught:
        read_limits(table)
    assert "\n" not in str(caught.value)


def test_the_docstrings_hold():
    assert doctest.testmod(limiting).failed == 0

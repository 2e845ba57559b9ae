"""The matrix of adversaries and defences: the strongest attack in each cell, and who learns no more."""

from typing import Any

import pytest
from report_runs import a_row

from glasshouse.findings import from_row
from glasshouse.verdicts.answers import answers_by_adversary
from glasshouse.verdicts.matrix import WEAKER, Matrix, echoed, matrix
from glasshouse.verdicts.measure import BY_ACCESS
from glasshouse.verdicts.pooling import pooled

PRUNED = "pruning(fraction=0.95)"


def of(*rows: dict[str, Any]) -> Matrix:
    return matrix(pooled(map(from_row, rows)))


def auc(value: float, **changes: Any) -> dict[str, Any]:
    return a_row(**{"value": value, "low": value - 0.03, "high": value + 0.03} | changes)


def labels(value: float, **changes: Any) -> dict[str, Any]:
    attack = {"family": "labels", "attack": "label-counts", "metric": "label-overlap", "chance": 0.4}
    return auc(value, **attack | changes)


def missing(**changes: Any) -> dict[str, Any]:
    none = {"value": None, "low": None, "high": None, "chance": None, "metric": "not-applicable"}
    return a_row(**none | {"reason": "the optimiser is Adam"} | changes)


def test_a_cell_has_the_strongest_attack_of_each_family_the_worst_family_first() -> None:
    server = {"adversary": "curious server"}
    made = of(
        auc(0.56, **server, attack="gap"),
        auc(0.66, **server, attack="lira"),
        labels(0.95, **server),
    )
    cell = made.cell("curious server", "none")
    assert [m.row.attack for m in cell.leads] == ["label-counts", "lira"]
    assert (cell.outcome, cell.severity) == ("leaks", "severe")


def test_a_cell_is_judged_by_the_worse_of_the_plain_and_the_adaptive_attack_and_says_which() -> None:
    for plain, adaptive, informed in ((0.6, 0.7, True), (0.7, 0.6, False)):
        made = of(
            auc(0.8, attack="lira"),
            auc(plain, attack="lira", defence=PRUNED),
            auc(adaptive, attack="lira(adaptive=True)", defence=PRUNED),
        )
        cell = made.cell("outsider", PRUNED)
        assert (cell.strongest.value if cell.strongest else None, cell.informed) == (0.7, informed)


def test_what_leaks_what_shows_nothing_what_was_not_tried_and_what_nobody_asked_are_four_things() -> None:
    made = of(
        auc(0.6),
        auc(0.51, defence=PRUNED),
        missing(adversary="curious server", attack="dlg"),
    )
    assert [made.cell("outsider", defence).outcome for defence in made.defences] == ["leaks", "nothing shown"]
    assert made.cell("curious server", "none").outcome == "could not be tried"
    assert made.cell("curious server", PRUNED).outcome is None


def test_an_attack_that_ran_in_one_form_was_tried() -> None:
    made = of(auc(0.6, attack="lira"), missing(attack="lira(adaptive=True)"), missing(attack="rmia"))
    assert [m.row.attack for m in made.cell("outsider", "none").untried] == ["rmia"]


def test_an_adversary_that_gets_no_more_than_a_weaker_one_under_any_defence_names_it() -> None:
    rows = [auc(0.7, attack="lira"), auc(0.62, attack="lira", defence=PRUNED)]
    same = [row | {"adversary": "blind server"} for row in rows]
    quiet = labels(0.41, adversary="blind server")
    assert [row.same_as for row in of(*rows, *same, quiet).rows] == [None, "outsider"]
    more = labels(0.9, adversary="blind server", defence=PRUNED)
    assert [row.same_as for row in of(*rows, *same, more).rows] == [None, None]


def test_an_adversary_with_nothing_of_its_own_is_not_said_to_learn_as_much_as_another() -> None:
    made = of(auc(0.7), auc(0.5, adversary="blind server"))
    assert [row.same_as for row in made.rows] == [None, None]


def test_who_cannot_do_what_another_can_is_not_compared_with_it() -> None:
    made = of(labels(0.9, adversary="curious server"), labels(0.9, adversary="blind crafting server"))
    assert [row.same_as for row in made.rows] == [None, None]


def test_every_adversary_that_is_weaker_stands_before_it_in_order_of_access_or_is_blind() -> None:
    for stronger, weaker in WEAKER.items():
        assert stronger not in weaker
        for name in weaker:
            assert set(WEAKER.get(name, ())) <= set(weaker)
            assert name in BY_ACCESS


@pytest.mark.parametrize(("theirs", "echo"), [(0.7, True), (0.6, False)])
def test_an_answer_echoes_a_weaker_adversary_that_gets_as_much(theirs: float, echo: bool) -> None:
    measures = pooled(map(from_row, [auc(theirs), auc(0.65, adversary="curious server")]))
    outsider, server = answers_by_adversary(measures)
    found = echoed("curious server", server.answers[0], [outsider, server])
    assert (found is not None) == echo
    assert echoed("outsider", outsider.answers[0], [outsider, server]) is None


def test_evasion_alone_fools_the_model() -> None:
    fooled = {"family": "evasion", "attack": "fgsm", "adversary": "owner", "metric": "robust-accuracy"}
    rows = [auc(0.6), auc(0.2, **fooled, chance=0.9)]
    assert [row.fools for row in of(*rows).rows] == [False, True]
    assert [row.fools for row in of(*rows, auc(0.6, adversary="owner")).rows] == [False, False]


def test_costs_stand_in_rows_with_a_gap_where_nothing_was_measured() -> None:
    cost = {"family": "utility", "adversary": None, "attack": None, "chance": None}
    made = of(
        auc(0.6),
        auc(0.55, defence=PRUNED),
        a_row(**cost, metric="test-accuracy", value=0.9),
        a_row(**cost, metric="test-accuracy", value=0.85, defence=PRUNED),
        a_row(**cost, metric="bytes-up", value=39_400.0, low=None, high=None),
    )
    assert [(metric, [m and m.value for m in known]) for metric, known in made.costs] == [
        ("test-accuracy", [0.9, 0.85]),
        ("bytes-up", [39_400.0, None]),
    ]


def test_a_part_of_the_matrix_keeps_its_rows() -> None:
    made = of(auc(0.6), auc(0.55, defence=PRUNED), auc(0.7, defence="clipping(norm=1.0)"))
    part = made.of(["none", "clipping(norm=1.0)"])
    assert part.defences == ("none", "clipping(norm=1.0)")
    assert [cell.strongest and cell.strongest.value for cell in part.rows[0].cells] == [0.6, 0.7]

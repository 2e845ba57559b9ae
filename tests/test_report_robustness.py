"""Is the federated model as robust as the central one: the table, the answer in words, and the figures."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from report_runs import (
    EVASIONS,
    LIMITS,
    Balanced,
    a_robust_run,
    a_row,
    a_run,
    left_right,
    page_of,
    robustness_points,
    robustness_rows,
    text_of,
)

from glasshouse.errors import BadInput
from glasshouse.exhibits import Robustness
from glasshouse.findings import from_row
from glasshouse.report import compare_reports, write_report
from glasshouse.report.figures.robustness import by_strength
from glasshouse.report.tables.robustness import comparison_table, defences_table
from glasshouse.report.words.names import short_names
from glasshouse.report.words.robustness import gradient_remarks, robustness_sentence
from glasshouse.verdicts.answers import answers_by_adversary
from glasshouse.verdicts.comparison import Comparison, comparison
from glasshouse.verdicts.measure import federated
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.tradeoff import tradeoffs

STRONGEST = list(EVASIONS)[-1]


def compared(rows: list[dict[str, Any]], points: list[dict[str, Any]] | None = None) -> Comparison:
    drawn = robustness_points() if points is None else points
    made = comparison(pooled(map(from_row, rows)), [Robustness(**point) for point in drawn])
    assert made is not None
    return made


def changed(metric: str, strategy: str = "fedavg", **values: Any) -> list[dict[str, Any]]:
    """The rows with other numbers for one metric of one undefended model."""
    return [
        row | values
        if (row["metric"], row["strategy"], row["defence"]) == (metric, strategy, "none")
        else row
        for row in robustness_rows()
    ]


def test_the_table_has_every_attack_and_the_curvature_of_both_models_with_their_difference() -> None:
    table = comparison_table(compared(robustness_rows()))
    assert [column.label for column in table.columns] == [
        "attack",
        "trained centrally",
        "federated",
        "difference",
        "verdict",
    ]
    assert [row[0].text for row in table.rows] == [
        "without an attack",
        "FGSM, eps 0.2",
        "PGD, eps 0.2",
        "strongest evasion, eps 0.2",
        "top eigenvalue of the Hessian",
    ]
    assert all(re.fullmatch(r"\S+ \(\S+ to \S+\)", cell.text) for row in table.rows for cell in row[1:3])
    assert [row[-1].text for row in table.rows] == [
        "no difference shown",
        *["federated lower"] * 3,
        "federated sharper",
    ]


def test_a_defence_has_a_row_of_the_same_numbers() -> None:
    table = defences_table(compared(robustness_rows()))
    assert table is not None
    assert [row[0].text for row in table.rows] == [
        "trained centrally",
        "undefended",
        "pruning 0.5",
        "clipping 1.0",
    ]
    assert len(table.columns) == len(table.rows[0]) == 6
    assert defences_table(compared([r for r in robustness_rows() if r["defence"] == "none"])) is None


def test_the_answer_is_yes_only_where_the_paired_interval_lies_below_zero() -> None:
    made = compared(robustness_rows())
    assert made.answer == "yes"
    assert (
        "9 of 100 test images right, the central one 17: a difference of \N{MINUS SIGN}8.5 points"
        in robustness_sentence(made)
    )
    assert "Without an attack it is not shown to be worse" in robustness_sentence(made)
    assert "Its loss is sharper (top eigenvalue 20.0, centrally 14.3)" in robustness_sentence(made)


@pytest.mark.parametrize(
    ("ends", "answer", "words"),
    [
        ({"value": -0.02, "low": -0.06, "high": 0.02}, "not shown", "may be luck"),
        ({"value": 0.08, "low": 0.03, "high": 0.13}, "no", "a difference of 8.0 points"),
        ({"value": -0.02, "low": None, "high": None}, "open", "too few to compare"),
    ],
)
def test_the_answer_follows_the_interval_of_the_difference(
    ends: dict[str, Any], answer: str, words: str
) -> None:
    made = compared(changed("robust-accuracy-over-central", **ends))
    assert made.answer == answer
    if ends["low"] is not None:
        assert words in robustness_sentence(made)


def test_a_federation_that_is_less_accurate_to_begin_with_is_told_so() -> None:
    made = compared(changed("clean-accuracy-over-central", value=-0.06, low=-0.09, high=-0.03))
    assert (
        "Part of that is plain accuracy: the difference without an attack is \N{MINUS SIGN}6.0 points"
        in robustness_sentence(made)
    )


def test_what_is_shown_within_smaller_limits_is_said_where_the_largest_shows_nothing() -> None:
    rows = changed("robust-accuracy-over-central", value=-0.02, low=-0.06, high=0.02)
    points = [
        point | {"difference": -0.02, "difference_low": -0.06, "difference_high": 0.02}
        if point["eps"] == LIMITS[-1] and point["strategy"] != "central"
        else point
        for point in robustness_points()
    ]
    made = compared(rows, points)
    assert made.answer == "not shown"
    assert (
        "Within eps 0.05 and 0.1 it keeps less, as far as one interval of several can show. Without"
        in robustness_sentence(made)
    )


def spent_rows() -> list[dict[str, Any]]:
    """Rows of attacks that fool both models on nearly every image."""
    nothing = {"value": 0.01, "low": 0.0, "high": 0.03}
    return [row | nothing if row["metric"] == "robust-accuracy" else row for row in robustness_rows()]


def test_where_nothing_is_left_the_largest_eps_that_leaves_something_decides() -> None:
    made = compared(spent_rows())
    assert made.answer == "yes"
    assert "Under attack (strongest evasion, eps 0.2)" in robustness_sentence(made)
    nearer = [point for point in robustness_points() if point["eps"] < LIMITS[-1]]
    made = compared(spent_rows(), nearer)
    assert "Under attack (strongest evasion, eps 0.1)" in robustness_sentence(made)
    assert (
        f"gets {100 * left_right(STRONGEST, 0.1, 1.0):.0f} of 100 test images right"
        in robustness_sentence(made)
    )


def test_where_nothing_is_left_within_any_limit_nothing_is_compared() -> None:
    made = compared(spent_rows(), [])
    assert made.answer == "open"
    assert "too few to compare" in robustness_sentence(made)


def test_without_a_central_model_the_federated_numbers_stand_alone(tmp_path: Path) -> None:
    rows = [
        r for r in robustness_rows() if r["strategy"] != "central" and not r["metric"].endswith("-central")
    ]
    made = compared(rows)
    assert [column.label for column in comparison_table(made).columns] == ["attack", "federated"]
    assert made.answer == "open"
    page = page_of(tmp_path, *rows)
    assert "there is no central model to compare it with" in page


def test_curvature_alone_makes_a_section_too(tmp_path: Path) -> None:
    rows = [r for r in robustness_rows() if r["family"] in ("utility", "curvature")]
    page = page_of(tmp_path, *rows)
    assert "How robust is it?" in page
    assert "Its loss is sharper" in page


def test_the_federation_alone_is_on_trial() -> None:
    measures = pooled(map(from_row, robustness_rows()))
    on_trial = federated(measures)
    owner = next(card for card in answers_by_adversary(on_trial) if card.adversary == "owner")
    (answer,) = owner.answers
    assert answer.lead.row.strategy == "fedavg"
    assert [line.name for line in answer.lines] == list(reversed(EVASIONS))
    for trade in tradeoffs(on_trial):
        assert {point.leak.row.strategy for point in trade.points} == {"fedavg"}


def test_a_comparison_of_runs_sets_federations_against_each_other(tmp_path: Path) -> None:
    runs = [a_robust_run(tmp_path / name) for name in ("a", "b")]
    page = compare_reports(runs, tmp_path / "both.html").read_text()
    card = page.partition("<h3>Owner of the model</h3>")[2].partition("</article>")[0]
    assert STRONGEST in card
    assert "trained centrally" not in card
    assert "robust accuracy, central" in text_of(page)


def test_signs_of_hidden_gradients_are_flagged_with_the_model_they_are_about(tmp_path: Path) -> None:
    sign = "square fools images that no gradient did"
    rows = [
        row | {"note": sign}
        if (row["metric"], row["attack"], row["defence"]) == ("robust-accuracy", STRONGEST, "none")
        else row
        for row in robustness_rows()
    ]
    made = compared(rows)
    assert gradient_remarks(made) == [
        f"strongest evasion on the central model: {sign}",
        f"strongest evasion on the federated model: {sign}",
    ]
    assert f"strongest evasion on the federated model: {sign}" in page_of(tmp_path, *rows)
    assert gradient_remarks(compared(robustness_rows())) == []


def test_options_are_left_out_of_names_where_the_names_tell_attacks_apart() -> None:
    assert short_names(["pgd(steps=5)", "fgsm"]) == {"pgd(steps=5)": "PGD", "fgsm": "FGSM"}
    same = ["pgd(steps=5)", "pgd(steps=50)"]
    assert short_names(same) == dict(zip(same, same))


def test_attacks_stand_from_the_strongest_to_the_weakest() -> None:
    points = [Robustness(**point) for point in robustness_points()]
    assert by_strength(points) == list(reversed(EVASIONS))


def test_the_page_draws_accuracy_against_eps_for_both_models_and_each_defence(tmp_path: Path) -> None:
    page = write_report(a_robust_run(tmp_path)).read_text()
    Balanced().check(page)
    assert 'href="#robustness"' in page
    drawings = {name: (tmp_path / "figures" / f"{name}.svg").read_text() for name in FIGURES}
    for name, names in FIGURES.items():
        ElementTree.fromstring(drawings[name])
        shown = set(re.findall(r">([^<>]+)</text>", drawings[name]))
        assert shown >= {*names, *(f"{limit:g}" for limit in LIMITS)}
        assert (tmp_path / "figures" / f"{name}.png").is_file()


FIGURES = {
    "robustness-linf": (
        "federated",
        "trained centrally",
        "FGSM",
        "PGD",
        "strongest evasion",
        "noise of the same size",
    ),
    "robustness-defences-linf": ("undefended", "pruning 0.5", "clipping 1.0"),
}


def test_norms_are_not_mixed_in_a_figure(tmp_path: Path) -> None:
    a_robust_run(tmp_path)
    curves = json.loads((tmp_path / "curves.json").read_text())
    curves["robustness"] += [
        point | {"norm": "l2", "attack": "pgd(norm='l2')"} for point in robustness_points()
    ]
    (tmp_path / "curves.json").write_text(json.dumps(curves))
    write_report(tmp_path)
    assert "L2 norm" in (tmp_path / "figures" / "robustness-l2.svg").read_text()
    assert "L2 norm" not in (tmp_path / "figures" / "robustness-linf.svg").read_text()


def test_a_point_without_a_number_leaves_a_figure_that_can_be_drawn(tmp_path: Path) -> None:
    a_run(tmp_path, [a_row()], full=False)
    points = [point | {"value": None, "low": None, "high": None} for point in robustness_points()]
    (tmp_path / "curves.json").write_text(json.dumps({"robustness": points}))
    Balanced().check(write_report(tmp_path).read_text())


def test_a_page_without_evasion_has_no_such_section(tmp_path: Path) -> None:
    assert "How robust is it?" not in page_of(tmp_path, a_row())


def test_a_point_that_is_no_number_is_refused(tmp_path: Path) -> None:
    a_run(tmp_path, [a_row()], full=False)
    wrong = robustness_points()[:1]
    wrong[0]["eps"] = "far"
    (tmp_path / "curves.json").write_text(json.dumps({"robustness": wrong}))
    with pytest.raises(BadInput, match=re.escape("at robustness.0.eps")):
        write_report(tmp_path)

"""Attacks on batches, attacks that tell nobody apart, and curves at the edge of the axes."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from report_runs import a_row, a_run, measured, page_of, text_of

from glasshouse.exhibits import Roc
from glasshouse.findings import from_row
from glasshouse.report import write_report
from glasshouse.report.figures.roc import RocPanel, decides, indifferent, roc_figure, roc_panels
from glasshouse.report.words.leaks import worth_sentence
from glasshouse.report.words.measures import sentence
from glasshouse.verdicts.answers import answers_by_adversary
from glasshouse.verdicts.metrics import families
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.tradeoff import tradeoffs

BATCHES = {"family": "batch-membership", "attack": "set-loss", "n": 240}
SILENT = {"attack": "gap", "value": 0.5, "low": None, "high": None, "note": "all scores are equal"}
FLAT = {"fpr": (0.0, 1.0), "tpr": (0.0, 1.0)}


def a_roc(attack: str = "gap", **changes: Any) -> Roc:
    rates = {"fpr": (0.0, 0.2, 0.5, 1.0), "tpr": (0.0, 0.4, 0.7, 1.0)}
    return Roc(**{"adversary": "outsider", "attack": attack, "members": 9, "nonmembers": 9} | rates | changes)


def roc_text(folder: Path, *rocs: Roc) -> str:
    """What a page says in its section of ROC curves."""
    a_run(folder, [a_row()], full=False)
    (folder / "curves.json").write_text(json.dumps({"roc": [roc.model_dump() for roc in rocs]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = write_report(folder).read_text()
    start = page.index('id="roc"')
    section = re.sub(
        r"<svg.*?</svg>", "", page[start : page.index('<details class="fold"', start)], flags=re.DOTALL
    )
    return text_of(section)


def test_a_batch_is_never_weighed_against_a_record() -> None:
    batches = a_row(**BATCHES, value=0.9, low=0.85, high=0.95)
    [card] = answers_by_adversary(pooled(map(from_row, [a_row(), batches])))
    assert [(a.family, a.lead.row.attack, len(a.lines)) for a in card.answers] == [
        ("membership", "loss-threshold", 1), ("batch-membership", "set-loss", 1),
    ]  # fmt: skip


def test_an_answer_about_batches_speaks_of_batches(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row(**BATCHES, value=0.9, low=0.85, high=0.95))
    assert "Was this batch of records used for training?" in text
    assert "sees one batch used for training and one that was not, and picks the right one in 90 of" in text
    found = measured(**BATCHES, metric="tpr-at-1%-fpr", value=0.2, chance=0.01)
    assert "points out 20 of 100 training batches while" in sentence(found)


def test_an_answer_about_records_speaks_of_records() -> None:
    assert "sees one record used for training" in sentence(measured())


def test_verdicts_on_batches_are_worded_as_those_on_records() -> None:
    single, batches = families()["membership"], families()["batch-membership"]
    assert (single.found, single.not_found) == (batches.found, batches.not_found)


def test_curves_on_batches_and_on_records_are_never_in_one_figure() -> None:
    rocs = [a_roc(f"{attack}-{unit}", unit=unit) for unit in (32, 1, 16) for attack in "ab"]
    panels = roc_panels(rocs)
    assert all(len({roc.unit for roc in panel.curves}) == 1 for panel in panels)
    assert [panel.title for panel in panels] == [
        "Outsider: all attacks",
        "Outsider: all attacks, batches of 16",
        "Outsider: all attacks, batches of 32",
    ]


def test_one_attack_on_batches_of_two_sizes_has_two_figures() -> None:
    panels = roc_panels([a_roc("set-loss", unit=unit) for unit in (16, 32)])
    assert [panel.title for panel in panels] == ["set-loss, batches of 16", "set-loss, batches of 32"]


def test_a_figure_on_batches_says_what_it_counts(tmp_path: Path) -> None:
    text = roc_text(tmp_path, a_roc("set-loss", unit=32, members=120, nonmembers=110))
    assert "set-loss, batches of 32 120 batches of members, 110 others: rates below 0.0091" in text


def test_a_curve_without_a_unit_is_about_single_records() -> None:
    assert a_roc().unit == 1


def test_an_attack_that_tells_nobody_apart_is_named_and_not_drawn(tmp_path: Path) -> None:
    rocs = [a_roc(attack) for attack in ("loss", "lira", "rmia")] + [a_roc("canary", **FLAT)]
    text = roc_text(tmp_path, *rocs)
    assert "No curve: canary gives all the same score." in text
    drawing = (tmp_path / "figures" / "roc-outsider-all-attacks.svg").read_text()
    assert "lira" in drawing
    assert "canary" not in drawing


def test_a_defence_that_leaves_no_curve_is_named(tmp_path: Path) -> None:
    text = roc_text(tmp_path, a_roc(), a_roc(defence="clipping(norm=1.0)", **FLAT))
    assert "No curve: gap gives all the same score (clipping 1.0)." in text


def test_without_any_curve_there_is_a_note_and_no_figure(tmp_path: Path) -> None:
    text = roc_text(tmp_path, a_roc(**FLAT))
    assert "9 members, 9 others. No curve: gap gives all the same score (undefended)." in text
    assert not list(tmp_path.glob("figures/roc-*"))


def test_no_curve_is_neither_a_point_nor_a_line() -> None:
    assert indifferent(a_roc(**FLAT))
    assert not decides(a_roc(**FLAT))
    assert not indifferent(a_roc())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("point", [(0.0, 0.5), (0.0, 1.0), (1.0, 0.0), (0.3, 0.0)])
@pytest.mark.parametrize("records", [1, 100])
def test_a_point_on_the_edge_leaves_the_axes_their_room(point: tuple[float, float], records: int) -> None:
    rates = {"fpr": (0.0, point[0], 1.0), "tpr": (0.0, point[1], 1.0)}
    roc = a_roc(**rates, members=records, nonmembers=records)
    assert roc_figure(RocPanel("gap", "defence", (roc,)), {}) is not None


def test_a_value_without_an_interval_is_not_judged_and_its_reason_is_a_caveat(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row(**SILENT))
    assert "not judged" in text
    assert "so no verdict: gap, AUC, outsider: all scores are equal." in text
    assert "gap nothing" in text[text.index("What each attack was given") :]


def test_a_note_is_told_from_what_the_attack_was_given(tmp_path: Path) -> None:
    known = ["8 shadow models"]
    silent = SILENT | {"assumes": known}
    text = page_of(tmp_path, a_row(**silent), a_row(attack="gap", metric="balanced-accuracy", assumes=known))
    assert "so no verdict: gap, AUC, outsider: all scores are equal." in text
    assert "gap 8 shadow models" in text[text.index("What each attack was given") :]


def test_the_reason_is_kept_when_only_one_seed_has_it(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row(attack="gap"), a_row(**SILENT, seed=1))
    assert "so no verdict: gap, AUC, outsider: all scores are equal." in text


def test_an_attack_that_was_judged_leads_before_one_that_tells_nobody_apart() -> None:
    judged = a_row(value=0.49, low=0.46, high=0.52)
    [card] = answers_by_adversary(pooled(map(from_row, [a_row(**SILENT), judged])))
    assert card.answers[0].lead.judged == "clear"


def test_no_defence_is_praised_where_the_attack_has_no_interval() -> None:
    rows = [a_row(**SILENT), a_row(attack="gap", defence="clipping(norm=1.0)", value=0.5, low=0.4, high=0.6)]
    [trade] = tradeoffs(pooled(map(from_row, rows)))
    assert worth_sentence(trade).startswith("Without an interval for the undefended model")

"""The page of an audit opens with what to do; what it shows first follows from it, and nothing is lost."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report_runs import Balanced, a_crowded_run, a_row, a_run, many_rows, measured, page_of, text_of

from glasshouse.findings import from_row
from glasshouse.report import write_report
from glasshouse.report.figures.frontier import places, point_names, undominated
from glasshouse.report.words.matrix import cost_words, dots, outcome_words, severity_class
from glasshouse.report.words.names import attack_words
from glasshouse.verdicts.frontier import frontier
from glasshouse.verdicts.pooling import pooled

MISSING: dict[str, Any] = {
    "metric": "not-applicable",
    "value": None,
    "low": None,
    "high": None,
    "chance": None,
    "reason": "the optimiser is Adam, and it inverts plain SGD",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = a_run(tmp_path_factory.mktemp("runs") / "full")
    write_report(made)
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def part(page: str, anchor: str) -> str:
    """What stands between an anchor and the next section or fold at the top level."""
    start = page.index(f'id="{anchor}"')
    ends = [page.find(mark, start) for mark in ("\n<section", '\n<details class="fold"', "</main>")]
    return page[start : min(end for end in ends if end > 0)]


def test_the_page_opens_with_what_to_do_why_at_what_cost_and_how_sure(page: str) -> None:
    order = [page.index(f'id="{name}"') for name in ("recommendation", "why", "cost", "confidence")]
    order += [page.index(f'id="{name}"') for name in ("matrix", "frontier", "answers", "defences", "all")]
    assert order == sorted(order)
    assert re.search(r'<h1 id="recommendation"><span class="action">(Ship|Defend|Stop|Cannot tell)', page)


def test_every_section_below_the_adversaries_is_folded_under_its_anchor(page: str) -> None:
    anchors = re.findall(r"<nav[^>]*>(.*?)</nav>", page, flags=re.DOTALL)[0]
    for anchor in re.findall(r'href="#([a-z]+)"', anchors):
        folded = f'<details class="fold" id="{anchor}">' in page
        assert folded == (anchor not in ("matrix", "frontier", "answers")), anchor


def test_nothing_is_lost(folder: Path, page: str) -> None:
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert drawn
    assert {f"figure-{name}" for name in drawn} <= set(re.findall(r'<figure[^>]* id="([^"]+)"', page))
    rows = re.findall(r"<tr>", page[page.index('id="findings"') : page.index('id="setup"')])
    findings = re.search(r"All (\d+) findings", page)
    assert findings
    assert len(rows) == int(findings[1]) + 1


def test_a_cell_of_the_matrix_names_attack_number_and_severity_in_words(page: str) -> None:
    shown = text_of(part(page, "matrix"))
    assert "●○○○ slight" in shown
    assert re.search(r"(moderate|severe|total) loss threshold AUC 0\.630", shown)
    assert "saturated head" in shown
    assert "test accuracy 93.0%" in shown


def test_an_attack_that_could_not_be_tried_is_told_from_one_that_shows_nothing(tmp_path: Path) -> None:
    server = {"adversary": "curious server", "family": "reconstruction", "attack": "dlg(steps=5)"}
    page = write_report(
        a_run(tmp_path, [a_row(value=0.5, low=0.47, high=0.53), a_row(**server | MISSING)], full=False)
    ).read_text()
    shown = text_of(part(page, "matrix"))
    assert re.search(r"Outsider nothing shown loss threshold AUC 0\.500", shown)
    assert f"Curious server // could not be tried {MISSING['reason']}" in shown
    assert "Curious server: DLG: the optimiser is Adam, and it inverts plain SGD." in shown
    assert "nothing was shown for the curious server" not in text_of(page)
    assert "no attack of the curious server could be tried" in shown


def test_an_adversary_that_learns_no_more_says_so_in_a_line_and_keeps_its_numbers(tmp_path: Path) -> None:
    rows = [a_row(attack="lira"), a_row(attack="lira", adversary="blind server")]
    page = write_report(a_run(tmp_path, rows, full=False)).read_text()
    assert "Blind server learns no more than the outsider" in text_of(part(page, "matrix"))
    card = page[page.index('id="adversary-blind-server"') :]
    card = text_of(card[: card.index("</article>")])
    assert "No more than the outsider : LiRA, AUC 0.570." in card
    assert "95% interval 0.530 to 0.610" in card


def test_figures_that_several_adversaries_share_are_drawn_once(tmp_path: Path) -> None:
    folder = a_crowded_run(tmp_path)
    curves = (folder / "curves.json").read_text()
    same = re.sub('"adversary": "curious server"', '"adversary": "blind server"', curves)
    both, other = json.loads(curves), json.loads(same)
    first = [risk for risk in both["risk"] if risk["adversary"] == "curious server"]
    both["risk"] += [risk for risk in other["risk"] if risk["adversary"] == "blind server"]
    assert first
    (folder / "curves.json").write_text(json.dumps(both))
    text = text_of(write_report(folder).read_text())
    assert text.count("It is the same for the blind server.") == 2  # by client and by round
    assert not list((folder / "figures").glob("risk-*-blind-server.svg"))


def test_options_are_shown_on_demand_and_not_in_the_text(tmp_path: Path) -> None:
    attack = "strongest-inversion(seconds=2.0)"
    rows = [a_row(attack=attack), a_row(attack=attack, defence="clipping(norm=1.0)")]
    page = write_report(a_run(tmp_path, rows, full=False)).read_text()
    assert attack not in text_of(part(page, "matrix"))
    assert attack not in text_of(part(page, "answers"))
    assert f'title="{attack}"' in page
    assert attack in text_of(part(page, "all"))


def test_attacks_have_the_names_people_know_them_by() -> None:
    names = ("lira", "mia-bad", "strongest(eps=0.1)", "strongest-inversion(seconds=2.0)", "apgd-ce")
    assert [attack_words(name) for name in names] == [
        "LiRA", "MIA-BAD", "strongest evasion", "strongest inversion", "APGD CE",
    ]  # fmt: skip


def test_a_small_auc_and_labels_read_exactly_do_not_look_the_same() -> None:
    slight = measured(value=0.53, low=0.51, high=0.55)
    exact = measured(family="labels", metric="label-overlap", value=1.0, low=0.97, high=1.0, chance=0.5)
    assert [severity_class(m) for m in (slight, exact)] == ["leaks slight", "leaks total"]
    assert [outcome_words(m) for m in (slight, exact)] == ["leaks: slight", "leaks: total"]
    assert [dots("slight"), dots("total")] == ["●○○○", "●●●●"]


def test_many_defences_stand_below_each_other_and_no_more_than_fit_beside_each_other(tmp_path: Path) -> None:
    page = write_report(a_run(tmp_path, many_rows(25), full=False)).read_text()
    Balanced().check(page)
    matrices = re.findall(r'<div class="matrix.*?</table>', page, flags=re.DOTALL)
    named = [row for matrix in matrices for row in re.findall(r'<th scope="(?:row|col)" title="', matrix)]
    assert len(named) == 25
    for matrix in matrices:
        head = matrix[matrix.index("<thead>") : matrix.index("</thead>")]
        assert head.count("<th ") <= 8
    shown = text_of("".join(matrices))
    assert "39.4 kB" in shown
    assert "9.5 s" in shown


def test_points_are_numbered_where_their_names_would_not_fit() -> None:
    drawn = undominated(places(frontier(pooled(map(from_row, many_rows(30))))))
    assert len(drawn) > 8
    assert point_names(drawn)[:2] == ["1", "2"]
    assert all("gaussian noise" in name for name in point_names(drawn[:8]))


@pytest.mark.parametrize(
    ("metric", "value", "words"),
    [
        ("test-accuracy", 0.9394, "93.9%"),
        ("bytes-up", 39_400.0, "39.4 kB"),
        ("training-seconds", 12.34, "12.3 s"),
        ("epsilon-spent-record", 3.14159, "3.14"),
    ],
)
def test_a_cost_is_written_in_the_unit_people_think_in(metric: str, value: float, words: str) -> None:
    assert cost_words(measured(metric=metric, value=value)) == words


def test_limits_of_the_configuration_decide(tmp_path: Path) -> None:
    accuracy = a_row(family="utility", adversary=None, attack=None, metric="test-accuracy", value=0.9)
    for number, (most, action) in enumerate((("total", "Ship"), ("none", "Stop"))):
        folder = a_run(tmp_path / str(number), [a_row(), accuracy], full=False)
        (folder / "config.toml").write_text(f'[audit.limits]\neveryone = "{most}"\n')
        assert f'<span class="action">{action}</span>' in write_report(folder).read_text()


def test_a_study_and_a_statement_open_as_they_are(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row(source="mia-bad", cell="table-4/a", printed=0.6))
    page = (tmp_path / "report.html").read_text()
    assert "Printed and measured" in text
    assert 'id="recommendation"' not in page
    assert '<details class="fold"' not in page
    assert '<section id="all">' in page


def test_a_contradiction_comes_before_everything_else(tmp_path: Path) -> None:
    private = {"defence": "dp-sgd(noise=1.0)", "chance": None, "n": 100}
    accounted = {"family": "privacy", "adversary": None, "attack": None, "metric": "epsilon-spent-record"}
    spent = a_row(**private, **accounted, value=1.0, low=None, high=None)
    bound = private | {"attack": "canary-records", "metric": "epsilon-delta-lower-bound", "high": None}
    for number, (low, loud) in enumerate(((2.5, True), (0.5, False))):
        rows = [a_row(), spent, a_row(**bound, value=low, low=low)]
        page = write_report(a_run(tmp_path / str(number), rows, full=False)).read_text()
        assert ('<p class="alarm" role="alert">' in page) == loud
        if loud:
            assert page.index('class="alarm"') < page.index('id="recommendation"')
            assert "spends at least 2.500; one of the two is wrong" in text_of(page)


def test_hostile_names_do_not_become_markup_in_the_matrix(tmp_path: Path) -> None:
    evil = '<img src=x onerror=alert(1)>\'" onmouseover="x'
    rows = [
        a_row(attack=evil, defence=evil, adversary=evil),
        a_row(**MISSING | {"reason": evil}, attack=evil, adversary="owner", defence="none"),
        a_row(attack=evil),
    ]
    page = write_report(a_run(tmp_path, rows, full=False)).read_text()
    assert "<img" not in page
    assert 'onmouseover="x' not in page
    Balanced().check(page)

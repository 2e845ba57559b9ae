"""The page is built from a run folder alone, says what the rows say, and claims no more."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from report_runs import Balanced, a_row, a_run, measured, page_of, text_of

from glasshouse.errors import BadInput
from glasshouse.findings import from_row
from glasshouse.report import write_report
from glasshouse.report.figures.placement import Rectangle, place
from glasshouse.report.words.leaks import worth_sentence
from glasshouse.report.words.measures import verdict
from glasshouse.report.words.names import defence_words
from glasshouse.spelling import of_hundred
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.tradeoff import tradeoffs


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = a_run(tmp_path_factory.mktemp("runs") / "full")
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def page(run_folder: Path) -> str:
    return (run_folder / "report.html").read_text()


def test_the_page_asks_nothing_of_the_network(page: str) -> None:
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", page)
    assert not re.findall(r"https?://(?!www\.w3\.org/)", page)
    assert "@import" not in page
    assert "fetch(" not in page


def test_the_same_run_gives_the_same_bytes(run_folder: Path, tmp_path: Path) -> None:
    again = a_run(tmp_path / "again")
    write_report(again)
    files = sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert Path("report.html") in files
    assert [name for name in files if (again / name).read_bytes() != (run_folder / name).read_bytes()] == []


def test_every_figure_is_kept_as_svg_and_png_that_can_be_read(run_folder: Path) -> None:
    drawn = sorted((run_folder / "figures").glob("*.svg"))
    assert (
        len(drawn) == 1 + 5 + 2 + 2
    )  # the frontier and one for each adversary, a ROC for each membership attack, global and local training
    for path in drawn:
        ElementTree.fromstring(path.read_bytes())
        with Image.open(path.with_suffix(".png")) as picture:
            assert picture.getpixel((1, 1))[:3] == (255, 255, 255)


def test_figures_on_the_page_take_its_colours_and_share_no_id(page: str) -> None:
    drawings = re.findall(r"<svg role=.*?</svg>", page, flags=re.DOTALL)
    assert len(drawings) == 10
    for drawing in drawings:
        ElementTree.fromstring(drawing)
        assert "currentColor" in drawing
        assert not re.search(r"(?:fill|stroke): #(?!fff)[0-9a-f]{3,6}", drawing)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:href="|url\()#([^")]+)', page):
        assert target in ids


def test_the_page_is_well_formed(page: str) -> None:
    Balanced().check(page)


def test_the_page_says_what_travels_in_a_round(page: str) -> None:
    assert "sent a round 91.5 kB to each client, 87.4 kB back" in text_of(page)


def test_every_table_has_a_caption_sortable_headings_and_a_csv_button(page: str) -> None:
    tables = re.findall(r"<table>.*?</table>", page[page.index('id="frontier"') :], flags=re.DOTALL)
    assert len(tables) == page.count('class="csv quiet"') == 5
    for table in tables:
        assert "<caption" in table
        assert table.count("<th ") == table.count('aria-sort="none"') > 0


def test_adversaries_stand_in_order_of_access(page: str) -> None:
    cards = re.findall(r'<details class="fold who-fold" id="adversary-([a-z-]+)"', page)
    assert cards == ["outsider", "owner", "curious-server", "blind-server", "crafting-server"]


def test_an_answer_is_a_sentence_for_a_manager_and_numbers_for_an_expert(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row())
    assert "picks the right one in 57 of 100 cases; a coin would get 50." in text
    assert "AUC 0.570, 95% interval 0.530 to 0.610, chance 0.500, n = 720" in text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.51, 0.61, "leaks"),
        (0.49, 0.61, "nothing shown (interval includes chance)"),
        (0.5, 0.61, "nothing shown (interval includes chance)"),
        (0.39, 0.49, "nothing shown (interval on the wrong side of chance)"),
        (None, None, "not judged (no interval or no chance level)"),
    ],
)
def test_the_verdict_follows_the_interval(low: float | None, high: float | None, words: str) -> None:
    assert verdict(measured(low=low, high=high)) == words


def test_a_low_robust_accuracy_is_a_strong_attack() -> None:
    attack = {"family": "evasion", "attack": "fgsm", "adversary": "owner", "metric": "robust-accuracy"}
    fooled = measured(**attack, value=0.2, low=0.15, high=0.25, chance=0.9)
    assert verdict(fooled) == "can be fooled"
    assert fooled.advantage == pytest.approx((0.7, 0.65, 0.75))
    assert measured(**attack, value=0.9, low=0.85, high=0.95, chance=0.9).judged == "clear"
    assert measured(**attack, value=0.99, low=0.97, high=1.0, chance=0.9).judged == "below"


def test_what_cannot_be_estimated_says_why(tmp_path: Path) -> None:
    missing = {"value": None, "low": None, "high": None, "reason": "every client holds one class"}
    text = page_of(tmp_path, a_row(**missing))
    assert "not estimable" in text
    assert text.count("every client holds one class") >= 2


def test_a_page_without_a_leak_does_not_claim_safety(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row(value=0.5, low=0.47, high=0.53))
    assert "no proof that nothing leaks" in text
    assert not re.search(r"\b(is|are) (safe|secure|private)\b", text)


def test_a_headline_without_a_leak_does_not_hide_another_metric_that_leaks(tmp_path: Path) -> None:
    quiet = a_row(value=0.51, low=0.48, high=0.54)
    loud = a_row(metric="tpr-at-1%-fpr", value=0.2, low=0.15, high=0.25, chance=0.01)
    text = page_of(tmp_path, quiet, loud)
    assert "points out 20 of 100 training records" in text
    assert "the outsider" in text.split("did better than a blind guess")[1][:20]


def test_adversaries_that_were_not_tried_are_named(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row())
    servers = "curious server, blind server, blind crafting server, crafting server"
    assert f"nothing is known about: owner of the model, client, {servers}" in text


def test_an_unknown_family_metric_and_adversary_appear_under_their_own_names(tmp_path: Path) -> None:
    strange = {
        "family": "theft",
        "metric": "loot",
        "adversary": "burglar",
        "attack": "crowbar",
        "value": 12.5,
    }
    text = page_of(tmp_path, a_row(**strange, low=11.0, high=14.0, chance=1.0))
    assert "The adversary called burglar scores 12.5 on loot; a blind guess would score 1.000." in text


def test_names_from_a_run_cannot_inject_markup(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>'\" $\\frac"
    changes = dict.fromkeys(("attack", "adversary", "defence", "strategy", "data", "model", "cell"), evil)
    utility = changes | {"adversary": None, "family": "utility", "metric": "test-accuracy"}
    rows = [a_row(**changes), a_row(**utility), a_row(**changes, source=evil)]
    folder = a_run(tmp_path / "evil", rows, full=False)
    roc = {
        "attack": evil,
        "defence": evil,
        "fpr": [0, 0.5, 0.6, 1],
        "tpr": [0, 0.6, 0.7, 1],
        "members": 2,
        "nonmembers": 2,
    }
    (folder / "curves.json").write_text(json.dumps({"roc": [roc]}))
    (folder / "config.toml").write_text("</pre>" + evil)
    page = write_report(folder).read_text()
    assert "<img" not in page
    Balanced().check(page)


def test_the_cheapest_defence_that_reaches_chance_is_named(tmp_path: Path) -> None:
    def under(defence: str, accuracy: float, value: float) -> list[dict[str, Any]]:
        utility = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}
        return [
            a_row(**utility, defence=defence, value=accuracy, low=accuracy - 0.01, high=accuracy + 0.01),
            a_row(defence=defence, value=value, low=value - 0.03, high=value + 0.03),
        ]

    rows = under("none", 0.9, 0.7) + under("clipping(norm=1.0)", 0.5, 0.5)
    rows += under("pruning(fraction=0.95)", 0.85, 0.52) + under("gaussian-noise(std=0.01)", 0.9, 0.66)
    [tradeoff] = tradeoffs(pooled(map(from_row, rows)))
    assert worth_sentence(tradeoff) == (
        "Cheapest defence that brings the interval down to chance: "
        "pruning 0.95 (AUC 0.700 \N{RIGHTWARDS ARROW} 0.520), for 5.0 points of test accuracy."
    )
    [tradeoff] = tradeoffs(pooled(map(from_row, under("none", 0.9, 0.7) + under("clipping", 0.9, 0.66))))
    assert worth_sentence(tradeoff) == "No defence tried lowers it by more than the intervals allow for."


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("none", "undefended"),
        (None, "undefended"),
        ("pruning(fraction=0.95)", "pruning 0.95"),
        ("gaussian-noise(std=1e+05)", "gaussian noise 1e+05"),
        ("clipping(norm=1.0)+gaussian-noise(std=0.01)", "clipping 1.0 + gaussian noise 0.01"),
        ("dp-sgd(norm=1.0, noise=2)", "dp sgd norm=1.0 noise=2"),
    ],
)
def test_a_defence_has_a_short_name(spec: str | None, words: str) -> None:
    assert defence_words(spec) == words


def test_a_share_is_never_rounded_to_certainty() -> None:
    assert [of_hundred(share) for share in (0, 0.004, 0.571, 0.997, 1)] == [
        "0 of 100", "fewer than 1 of 100", "57 of 100", "more than 99 of 100", "100 of 100",
    ]  # fmt: skip


def test_labels_keep_off_each_other_and_inside_the_frame() -> None:
    rng = np.random.default_rng(0)
    frame = Rectangle(0, 0, 320, 240)
    for _ in range(8):
        anchors = [(float(x), float(y)) for x, y in rng.uniform((60, 60), (260, 180), (7, 2))]
        labels = place(
            anchors, [(90.0, 12.0)] * 7, [Rectangle(x - 4, y - 4, 8, 8) for x, y in anchors], frame
        )
        assert all(label.overlap(frame) == pytest.approx(label.width * label.height) for label in labels)
        assert not any(a.overlap(b) for i, a in enumerate(labels) for b in labels[:i])


def test_a_study_sets_printed_beside_measured(tmp_path: Path) -> None:
    def cell(name: str, printed: float | None) -> list[dict[str, Any]]:
        values = (0.60, 0.64)
        return [
            a_row(
                source="mia-bad", cell=name, printed=printed, seed=seed, value=v, low=v - 0.01, high=v + 0.01
            )
            for seed, v in enumerate(values)
        ]

    rows = cell("table-4/a", 0.63) + cell("table-4/b", 0.71) + cell("table-4/c", None)
    folder = a_run(tmp_path / "study", rows, full=False)
    claim = {"claim": "small batches leak more", "section": "section 5", "printed": "0.63 and 0.71"}
    verdicts = [claim | {"verdict": "holds", "reason": "in every cell"}]
    study = {"title": "A study", "summary": "Two numbers.", "verdicts": verdicts}
    (folder / "study.json").write_text(json.dumps(study))
    text = text_of(write_report(folder).read_text())
    assert "The paper's 1 claims: holds (1). Of 2 printed numbers, 1 lies within the interval" in text
    assert "small batches leak more section 5 0.63 and 0.71 in every cell holds" in text
    table = text[text.index("mia-bad: printed and measured") :]
    for name, printed, judged in (
        ("table-4/a", "0.630", "within the interval"),
        ("table-4/b", "0.710", "printed number outside the interval"),
        ("table-4/c", "\N{EN DASH}", "no printed number"),
    ):
        expected = f"{name} undefended AUC {printed} 0.620 0.590 to 0.650 0.600 to 0.640 2 {judged}"
        assert expected in table
    assert "Who learns what" not in text


def test_a_bare_results_file_is_enough(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_row(family="utility", adversary=None, attack=None, metric="test-accuracy"))
    assert "No attack was run" in text
    assert "neither its configuration nor its versions" in text


def test_a_missing_picture_leaves_a_gap_and_not_an_error(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", [a_row()], full=False)
    exhibit = {"attack": "fgsm", "original": "a.png", "result": "b.png"}
    (folder / "curves.json").write_text(json.dumps({"gallery": [exhibit]}))
    assert "image missing" in write_report(folder).read_text()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("results.json", None, "no results.json there"),
        ("results.json", "{", "not readable as JSON"),
        ("results.json", "[]", "no findings"),
        ("results.json", '{"a": 1}', "at the top level"),
        ("results.json", json.dumps([a_row(value="high")]), "at 0.value"),
        ("results.json", json.dumps([{"family": "membership"}]), "at 0."),
        ("results.json", json.dumps([a_row(value=None)]), "needs its reason"),
        (
            "curves.json",
            '{"gallery": [{"original": "../../a.png", "result": "b.png"}]}',
            "outside the run folder",
        ),
        (
            "curves.json",
            '{"roc": [{"attack": "gap", "fpr": [0, 1], "tpr": [0], "members": 1, "nonmembers": 1}]}',
            "2 fpr and 1 tpr",
        ),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(
    tmp_path: Path, name: str, content: str | None, told: str
) -> None:
    folder = a_run(tmp_path / "run", [a_row()], full=False)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(BadInput, match=re.escape(told)) as refusal:
        write_report(folder)
    assert "\n" not in str(refusal.value)
    assert not (folder / "report.html").exists()


def test_the_report_does_not_load_torch() -> None:
    code = "import sys, glasshouse.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

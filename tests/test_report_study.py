"""A study's page shows the figures and tables that the study lays out, printed apart from measured."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from report_runs import Balanced, a_chart, a_study, a_table, text_of

from glasshouse.errors import BadInput
from glasshouse.exhibits import Chart
from glasshouse.report import write_report
from glasshouse.report.figures.charts import chart_figure, undrawn, wide


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    charts = [a_chart(), a_chart(name="bars", title="The same as bars", kind="bars")]
    verdicts = [{"claim": "small batches leak more", "verdict": "holds"}]
    made = a_study(tmp_path_factory.mktemp("study"), charts=charts, tables=[a_table()], verdicts=verdicts)
    write_report(made)
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def drawing_of(**changes: object) -> str:
    return chart_figure(Chart.model_validate(a_chart(**changes))).inline


def test_figures_follow_printed_and_measured(page: str) -> None:
    Balanced().check(page)
    assert re.findall(r"<h2>(.*?)</h2>", page)[:3] == ["Printed and measured", "Figures", "Every finding"]
    assert '<a href="#charts">Figures</a>' in page
    assert "Means over two seeds." in page


def test_curves_that_a_study_draws_in_its_charts_are_not_drawn_again(tmp_path: Path) -> None:
    point = {
        "cell": "table/x",
        "seed": 0,
        "round": 1,
        "acc_global": 0.5,
        "acc_local": 0.4,
        "down": 8,
        "up": 8,
    }
    for charts, drawn in (([a_chart()], False), ([], True)):
        run = a_study(tmp_path / str(drawn), charts=charts)
        (run / "curves.json").write_text(json.dumps({"training": [point]}))
        text = text_of(write_report(run).read_text())
        assert ("the clients' own models, on average" in text) == drawn
        assert "sent a round" not in text


def test_every_chart_is_kept_as_svg_and_png(folder: Path) -> None:
    for name in ("chart-auc-by-batch", "chart-bars"):
        ElementTree.fromstring((folder / "figures" / f"{name}.svg").read_bytes())
        with Image.open(folder / "figures" / f"{name}.png") as picture:
            assert picture.width > picture.height


def test_charts_take_the_colours_of_the_page(page: str) -> None:
    drawings = re.findall(r"<svg role=.*?</svg>", page, flags=re.DOTALL)
    assert len(drawings) == 2
    for drawing in drawings:
        assert not re.search(r"(?:fill|stroke): #(?!fff)[0-9a-f]{3,6}", drawing)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_a_printed_series_is_dashed_and_hollow_and_has_the_colour_of_its_measured_one(kind: str) -> None:
    measured, printed = a_chart()["series"][:2]
    alone = [drawing_of(kind=kind, chance=None, series=[one]) for one in (measured, printed)]
    assert ["stroke-dasharray" in drawing for drawing in alone] == [False, True]
    assert ["fill: var(--accent)" in drawing for drawing in alone] == [True, False]
    both = drawing_of(kind=kind, chance=None, series=[measured, printed])
    assert "--series-1" not in both


def test_two_series_of_other_names_have_other_colours() -> None:
    assert "--series-1" in drawing_of(series=[a_chart()["series"][0], a_chart()["series"][2]])


def test_a_printed_series_says_so_in_the_legend() -> None:
    paper = {"name": "fedavg", "values": [0.6, 0.6, 0.6, 0.6], "printed": True}
    assert "fedavg (printed)" in drawing_of(series=[paper])
    assert "(printed)" not in drawing_of(series=[paper | {"name": "fedavg, paper"}])


def test_a_chart_of_many_values_takes_the_whole_width() -> None:
    assert wide(Chart.model_validate(a_chart()))
    assert not wide(Chart.model_validate(a_chart(series=a_chart()["series"][:4])))


def test_a_zero_on_a_logarithmic_axis_is_said_to_be_left_out(tmp_path: Path) -> None:
    nothing = {
        "name": "none found",
        "values": [0.0, 0.1, None, 0.01],
        "low": [0, 0, None, 0],
        "high": [0.1] * 4,
    }
    for kind in ("lines", "bars"):
        chart = a_chart(kind=kind, log_y=True, series=[nothing])
        assert undrawn(Chart.model_validate(chart))
        text = text_of(write_report(a_study(tmp_path / kind, charts=[chart])).read_text())
        assert "Zero has no place on a logarithmic axis and is left out." in text


def test_the_studys_own_tables_come_before_the_long_one(page: str) -> None:
    tables = re.findall(r'<div class="table" id="([^"]+)"', page)
    assert tables == ["claims", "table-table-1", "printed-mia-bad", "findings", "assumptions"]
    text = text_of(page)
    assert "central 0.833 / 0.712 [0.69, 0.73] \N{EN DASH} 1" in text
    assert "Brackets hold the 95% interval." in text


@pytest.mark.parametrize(("cells", "folded"), [(40, False), (41, True)])
def test_more_than_forty_printed_numbers_are_folded_away(tmp_path: Path, cells: int, folded: bool) -> None:
    page = write_report(a_study(tmp_path, cells)).read_text()
    Balanced().check(page)
    assert ('<details class="long">' in page) == folded
    assert f"table-4/cell-{cells - 1}" in page


def test_names_in_a_chart_cannot_inject_markup(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>'\" $\\frac"
    series = [{"name": evil, "values": [1.0]}]
    chart = a_chart(name=evil, title=evil, x=evil, y=evil, note=evil, categories=[evil], series=series)
    table = a_table(name=evil, title=evil, columns=[evil], rows=[[evil]], note=evil)
    page = write_report(a_study(tmp_path, charts=[chart], tables=[table])).read_text()
    assert "<img" not in page
    Balanced().check(page)


@pytest.mark.parametrize(
    ("study", "told"),
    [
        ({"charts": [a_chart(categories=["16"])]}, "4 numbers for 1 categories"),
        ({"charts": [a_chart(), a_chart()]}, "chart name 'auc-by-batch' is empty or used twice"),
        ({"charts": [a_chart(kind="pie")]}, "at charts.0.kind"),
        ({"tables": [a_table(columns=["training"])]}, "4 cells for 1 columns"),
        ({"tables": [a_table(name="!")]}, "table name '' is empty or used twice"),
    ],
)
def test_a_damaged_study_is_refused_in_one_line(tmp_path: Path, study: dict[str, object], told: str) -> None:
    made = a_study(tmp_path, **study)
    assert json.loads((made / "study.json").read_text())
    with pytest.raises(BadInput, match=re.escape(told)) as refusal:
        write_report(made)
    assert "\n" not in str(refusal.value)

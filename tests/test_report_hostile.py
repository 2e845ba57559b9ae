"""A run folder that somebody else wrote: a right page or one line, never a traceback, never its markup."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from report_runs import Balanced, a_row, a_run

from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits
from glasshouse.findings import from_row
from glasshouse.report import compare_reports, write_report
from glasshouse.report import run as reading
from glasshouse.results import write_results

FILES = ("results.json", "curves.json", "study.json", "environment.json", "config.toml")


def chart(**changes: Any) -> dict[str, Any]:
    series = [{"name": "s", "values": [0.5, 1.0]}]
    return {"name": "c", "title": "t", "categories": ["a", "b"], "series": series} | changes


def refusal(folder: Path) -> str:
    """The single line with which the page is refused, alone and beside another run."""
    with pytest.raises(BadInput) as refused:
        write_report(folder)
    with pytest.raises(BadInput):
        compare_reports([folder, folder], folder.parent / "both.html")
    assert str(refused.value).isprintable()
    assert not (folder / "report.html").is_file()
    return str(refused.value)


@pytest.mark.parametrize("key", ["value", "low", "high", "chance", "printed", "seconds"])
@pytest.mark.parametrize("number", ["1e308", "-1e308", "1e999", "NaN", "-Infinity", "9" * 5000])
def test_a_number_that_no_page_can_show_is_refused(tmp_path: Path, key: str, number: str) -> None:
    folder = a_run(tmp_path / "run", [a_row()], full=False)
    text = json.dumps([a_row(**{key: "HERE"})]).replace('"HERE"', number)
    (folder / "results.json").write_text(text)
    assert "results.json" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("results.json", "[" * 100_000, "not readable as JSON"),
        ("results.json", '{"a":' * 100_000, "not readable as JSON"),
        ("results.json", json.dumps([a_row(data="\ud800")]), "not readable as JSON"),
        ("results.json", json.dumps([a_row(n=10**400)]), "at 0.n"),
        ("curves.json", "[" * 100_000, "not readable as JSON"),
        ("curves.json", "[]", "at the top level"),
        ("curves.json", '{"training": [{"round": 1, "acc_global": NaN}]}', "training.0.acc_global"),
        ("curves.json", '{"training": [{"round": 1, "acc_global": 1e308}]}', "training.0.acc_global"),
        ("curves.json", json.dumps({"training": [{"round": 2**80, "acc_global": 0.5}]}), "0.round"),
        ("curves.json", '{"course": [{"step": 1, "seconds": 1, "psnr": NaN}]}', "course.0.psnr"),
        ("curves.json", json.dumps({"gallery": [{"original": "a\0b", "result": "b"}]}), "a\\x00b"),
        ("curves.json", json.dumps({"gallery": [{"original": "a" * 999, "result": "b"}]}), "run folder"),
        ("study.json", json.dumps({"charts": [chart(chance=1e308)]}), "charts.0.chance"),
        ("environment.json", '{"a": "\\ud800"}', "not readable as JSON"),
        ("environment.json", '{"a": 1}', "at a"),
        ("config.toml", b"\xe9", "not readable as text"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, name: str, content: str | bytes, told: str
) -> None:
    folder = a_run(tmp_path / "run", [a_row()], full=False)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert told in refusal(folder)


@pytest.mark.parametrize("name", FILES)
def test_only_regular_files_of_bounded_length_are_read(tmp_path: Path, name: str) -> None:
    folder = a_run(tmp_path / "run", [a_row()], full=False)
    file = folder / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    assert "is a pipe" in refusal(folder)
    file.unlink()
    file.mkdir()
    assert "is a folder" in refusal(folder)
    file.rmdir()
    file.symlink_to("/dev/zero")
    assert "is a device" in refusal(folder)
    file.unlink()
    file.symlink_to(file)
    assert "cannot be read" in refusal(folder)
    file.unlink()
    with file.open("wb") as long:
        long.truncate(2**33)
    assert "over the limit" in refusal(folder)


@pytest.mark.parametrize("name", ["results.json", "curves.json", "checksums.json"])
def test_results_that_changed_since_the_run_are_refused(tmp_path: Path, name: str) -> None:
    write_results(tmp_path / "run", [from_row(a_row(value=0.5))], Exhibits())
    write_report(tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink()
    whole = (tmp_path / "run" / name).read_text()
    (tmp_path / "run" / name).write_text(whole.replace("5", "6") + " ")
    assert "does not fit" in refusal(tmp_path / "run")
    if name != "checksums.json":
        (tmp_path / "run" / name).unlink()
        assert "is missing" in refusal(tmp_path / "run")


def test_more_findings_than_a_browser_can_show_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 3)
    assert "4 findings, over the limit of 3" in refusal(a_run(tmp_path / "run", [a_row()] * 4, full=False))


@pytest.mark.parametrize(
    "config",
    ["a=" + "[" * 9000, f"[{'.'.join('a' * 3000)}]\nclients = 3", f"clients = {'9' * 5000}", "a = </pre>"],
)
def test_a_configuration_that_cannot_be_parsed_is_shown_as_it_is(tmp_path: Path, config: str) -> None:
    folder = a_run(tmp_path / "run", [a_row()], full=False)
    (folder / "config.toml").write_text(config)
    Balanced().check(write_report(folder).read_text())


def test_the_largest_numbers_that_are_allowed_are_drawn(tmp_path: Path) -> None:
    far = {"value": 1e100, "low": -1e100, "high": 1e100}
    utility = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}
    rows = [a_row(**far, seed=seed) for seed in range(2)]
    rows += [
        a_row(**utility | far),
        a_row(**utility | {"value": -1e100, "low": None, "high": None}, defence="x"),
    ]
    rows += [a_row(defence="x"), a_row(**far, source="study", printed=-1e100)]
    folder = a_run(tmp_path / "run", rows, full=False)
    points = [{"round": 2**62, "acc_global": 1e100}, {"round": -(2**62), "acc_global": -1e100}]
    (folder / "curves.json").write_text(json.dumps({"training": points}))
    series = [{"name": "s", "values": [1e100, -1e100], "low": [-1e100, None], "high": [1e100, None]}]
    charts = [chart(name=kind, kind=kind, series=series) for kind in ("lines", "curves", "bars")]
    (folder / "study.json").write_text(json.dumps({"charts": charts}))
    Balanced().check(write_report(folder).read_text())


def test_no_text_of_a_run_becomes_markup(tmp_path: Path) -> None:
    evil = "</svg></script>-->]]><script>alert(1)</script><img src=x onerror=alert(1)>"
    folder = a_run(tmp_path / "run", [a_row(source=evil, note=evil, data=evil)], full=False)
    series = [{"name": evil, "values": [0.5]}]
    study = {"title": evil, "summary": evil, "charts": [chart(title=evil, categories=[evil], series=series)]}
    study["tables"] = [{"name": "t", "title": evil, "columns": [evil], "rows": [[evil]], "note": evil}]
    (folder / "study.json").write_text(json.dumps(study))
    (folder / "environment.json").write_text(json.dumps({evil: evil}))
    (folder / "evil.html").write_text(evil)
    gallery = [{"attack": evil, "original": "evil.html", "result": "evil.html", "caption": evil}]
    (folder / "curves.json").write_text(json.dumps({"gallery": gallery}))
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    for page in (write_report(folder), compare_reports([folder, copy], tmp_path / "both.html")):
        text = page.read_text()
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "data:text" not in text
        Balanced().check(text)


def test_a_chart_of_thousands_of_categories_names_a_few(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", [a_row(source="study")], full=False)
    many = [f"category {place}" for place in range(3000)]
    series = [{"name": "s", "values": [0.5] * len(many)}]
    (folder / "study.json").write_text(json.dumps({"charts": [chart(categories=many, series=series)]}))
    assert write_report(folder).read_text().count("category ") < 30

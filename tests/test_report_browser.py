"""The page in a real browser: it loads cleanly, sorts, filters, downloads and fits a phone, light or dark."""

import csv
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import (
    a_chart,
    a_crowded_run,
    a_robust_run,
    a_row,
    a_run,
    a_study,
    a_table,
    audit_rows,
    many_rows,
)

from glasshouse.report import compare_reports, write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium, from the dev extra")

pytestmark = pytest.mark.browser

CONTRASTS = """
const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
const luminance = (colour) => {
  const [r, g, b] = channels(colour).slice(0, 3).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const opaque = (colour) => channels(colour).length === 3 || channels(colour)[3] === 1;
const plain = "p, dt, dd, li, h1, h2, h3, td, th, small, button, figcaption, summary";
const texts = plain + ", .chip, .action, .legend > span, td span, .teaser";
return [...document.querySelectorAll(texts)]
  .filter((element) => element.getClientRects().length)
  .map((element) => {
    let behind = element;
    while (!opaque(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const pair = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(luminance);
    return [(Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05), element.outerHTML.slice(0, 80)];
  });
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs chromium and chromedriver on the PATH (Debian: apt-get install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    audit = a_run(folder / "audit")
    rows = [a_row(source="mia-bad", cell="table-4/a-cell-with-a-rather-long-name", printed=0.6)]
    study = a_run(folder / "study", rows, full=False)
    other = a_run(
        folder / "other", [row | {"value": row["value"] and row["value"] / 2} for row in audit_rows()]
    )
    charts = [a_chart(), a_chart(name="bars", kind="bars")]
    return {
        "audit": write_report(audit),
        "robust": write_report(a_robust_run(folder / "robust")),
        "crowd": write_report(a_crowded_run(folder / "crowd", clients=100)),
        "many": write_report(a_run(folder / "many", many_rows(), full=False)),
        "study": write_report(study),
        "figures": write_report(a_study(folder / "figures", charts=charts, tables=[a_table()])),
        "comparison": compare_reports([audit, other], folder / "both.html"),
    }


def visit(
    browser: Any, page: Path, width: int = 1280, scheme: str = "light", *, height: int = 844, at: str = ""
) -> None:
    """Open the page as a screen of this size and colour scheme would show it, `at` an anchor of it."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    features = [{"name": "prefers-color-scheme", "value": scheme}, still]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get("about:blank")  # so that an anchor of the same page loads it anew
    browser.get(page.as_uri() + (f"#{at}" if at else ""))


def open_folds(browser: Any) -> None:
    """Open all that is folded away."""
    browser.execute_script("for (const fold of document.querySelectorAll('details')) fold.open = true")


def column(browser: Any, table: str, heading: str) -> list[str]:
    """The cells under a heading, from the top, of the rows that are shown."""
    script = """
    const table = document.querySelector(`#${arguments[0]} table`);
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    const index = names.indexOf(arguments[1]);
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    return rows.map((row) => row.cells[index].textContent.trim());
    """
    return list(browser.execute_script(script, table, heading))


def click_heading(browser: Any, table: str, heading: str) -> str:
    """Click a heading; its aria-sort afterwards."""
    for th in browser.find_elements("css selector", f"#{table} th"):
        if th.text.strip().startswith(heading):
            th.find_element("tag name", "button").click()
            return str(th.get_attribute("aria-sort"))
    raise AssertionError(f"no heading {heading}")


def downloaded(browser: Any, table: str, folder: Path) -> list[dict[str, str]]:
    """Click the table's CSV button and read what arrives."""
    where = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    button = browser.find_element("css selector", f"#{table} .csv")
    browser.execute_script("arguments[0].click()", button)
    file = folder / f"{table}.csv"
    deadline = time.monotonic() + 10
    # Chromium holds the name with an empty file until the whole download takes its place.
    while not file.exists() or not file.stat().st_size or list(folder.glob("*.crdownload")):
        assert time.monotonic() < deadline, "nothing was downloaded"
        time.sleep(0.05)
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("name", ["audit", "robust", "crowd", "many", "study", "figures", "comparison"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_loads_cleanly_and_never_scrolls_sideways(
    browser: Any, pages: dict[str, Path], name: str, scheme: str, width: int
) -> None:
    visit(browser, pages[name], width, scheme)
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    widths = "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    for fold in (False, True):
        if fold:
            open_folds(browser)
        needed, there = browser.execute_script(widths)
        assert needed <= there <= width


@pytest.mark.parametrize("name", ["audit", "robust", "crowd", "many", "figures"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_what_lies_behind_it(
    browser: Any, pages: dict[str, Path], name: str, scheme: str
) -> None:
    visit(browser, pages[name], scheme=scheme)
    open_folds(browser)
    contrasts = browser.execute_script(CONTRASTS)
    assert len(contrasts) > 100
    assert [entry for entry in contrasts if entry[0] < 4.5] == []


@pytest.mark.parametrize("name", ["audit", "robust", "crowd", "many"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_says_what_to_do_why_at_what_cost_and_how_sure(
    browser: Any, pages: dict[str, Path], name: str, width: int, height: int
) -> None:
    visit(browser, pages[name], width, height=height)
    for part in ("recommendation", "why", "cost", "confidence"):
        element = browser.find_element("id", part)
        box = browser.execute_script("return arguments[0].getBoundingClientRect()", element)
        assert len(element.text) > 10, part
        assert 0 <= box["top"] < box["bottom"] <= height, (part, box["bottom"])
        assert 0 <= box["left"] < box["right"] <= width, part


@pytest.mark.parametrize("name", ["audit", "crowd", "many"])
def test_the_matrix_and_the_table_of_defences_are_not_cut_at_1280_pixels(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    visit(browser, pages[name], at="defences")
    widths = "const box = document.querySelector(arguments[0]); return [box.scrollWidth, box.clientWidth]"
    open_folds(browser)
    for box in (".matrix", "#defences-table .box", "#findings .box"):
        needed, there = browser.execute_script(widths, box)
        assert 0 < needed <= there, box


def test_on_a_phone_the_matrix_scrolls_in_its_box_and_its_first_column_stays(
    browser: Any, pages: dict[str, Path]
) -> None:
    visit(browser, pages["audit"], width=390)
    moved = """
    const box = document.querySelector(".matrix");
    const place = (cell) => cell.getBoundingClientRect().left;
    const [first, second] = box.querySelector("tbody tr").cells;
    const before = [place(first), place(second)];
    box.scrollLeft = 150;
    return [before[0] - place(first), before[1] - place(second)];
    """
    assert browser.execute_script(moved) == [0, 150]


@pytest.mark.parametrize("anchor", ["roc", "findings", "adversary-owner", "figure-privacy-outsider"])
def test_an_anchor_opens_what_is_folded_over_it(browser: Any, pages: dict[str, Path], anchor: str) -> None:
    shown = "return document.getElementById(arguments[0]).checkVisibility()"
    inside = f"#{anchor} p, #{anchor} table, #{anchor} svg"
    visit(browser, pages["audit"])
    assert not browser.find_element("css selector", inside).is_displayed()
    visit(browser, pages["audit"], at=anchor)
    assert browser.execute_script(shown, anchor)
    assert browser.find_element("css selector", inside).is_displayed()
    top = browser.execute_script(
        "return document.getElementById(arguments[0]).getBoundingClientRect().top", anchor
    )
    assert 0 <= top < 844


def test_a_link_opens_its_fold_again_after_it_was_closed(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["audit"])
    link = browser.find_element("css selector", ".matrix a[href='#adversary-owner']")
    fold = browser.find_element("id", "adversary-owner")
    for _ in range(2):
        browser.execute_script("arguments[0].click()", link)
        deadline = time.monotonic() + 5
        while not fold.get_attribute("open"):
            assert time.monotonic() < deadline, "it stayed closed"
            time.sleep(0.02)
        browser.execute_script("arguments[0].open = false", fold)


def test_on_paper_everything_is_open(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["audit"])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    height = "return document.getElementById('findings').getBoundingClientRect().height"
    printed = browser.execute_script(height)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert printed > 1000


def test_dark_mode_follows_the_system_and_the_button_overrules_it(
    browser: Any, pages: dict[str, Path]
) -> None:
    brightness = (
        "return Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    )
    visit(browser, pages["audit"], scheme="dark")
    assert browser.execute_script(brightness) < 64
    browser.find_element("id", "theme").click()
    assert browser.execute_script(brightness) > 192
    visit(browser, pages["audit"], scheme="light")
    assert browser.execute_script(brightness) > 192


def test_a_heading_sorts_by_number_and_then_the_other_way(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["audit"], at="findings")
    before = column(browser, "findings", "value")
    assert click_heading(browser, "findings", "value") == "ascending"
    assert column(browser, "findings", "value") == sorted(before, key=float)
    assert click_heading(browser, "findings", "value") == "descending"
    assert column(browser, "findings", "value") == sorted(before, key=float, reverse=True)
    assert click_heading(browser, "findings", "defence") == "ascending"
    sorted_headings = browser.find_elements("css selector", "#findings th:not([aria-sort=none])")
    assert [heading.text.strip()[:7] for heading in sorted_headings] == ["defence"]


def test_the_filter_keeps_rows_that_hold_every_word(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["audit"], at="findings")
    browser.find_element("css selector", "#findings .filter").send_keys("Outsider 0.95")
    defences = column(browser, "findings", "defence")
    assert set(column(browser, "findings", "adversary")) == {"outsider"}
    assert "pruning 0.95" in defences
    assert browser.find_element("css selector", "#findings .count").text.startswith(f"{len(defences)} of ")


def test_the_csv_holds_the_findings_exactly(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    visit(browser, pages["audit"])
    rows = json.loads((pages["audit"].parent / "results.json").read_text())
    read = downloaded(browser, "findings", tmp_path)
    assert len(read) == len(rows)
    for line, row in zip(read, rows):
        assert [line[key] for key in ("adversary", "attack")] == [row["adversary"] or "", row["attack"] or ""]
        assert (line["defence"], line["metric"]) == (row["defence"], row["metric"])
        for key in ("value", "low", "high", "chance", "n"):
            assert float(line[key]) == row[key]


def test_the_csv_holds_only_the_rows_that_are_shown(
    browser: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    visit(browser, pages["audit"], at="findings")
    browser.find_element("css selector", "#findings .filter").send_keys("blind server")
    click_heading(browser, "findings", "value")
    read = downloaded(browser, "findings", tmp_path)
    assert {line["adversary"] for line in read} == {"blind server"}
    assert [float(line["value"]) for line in read] == sorted(float(line["value"]) for line in read)


def test_a_long_table_opens_with_a_click(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["figures"])
    table = browser.find_element("css selector", "#printed-mia-bad table")
    assert not table.is_displayed()
    browser.find_element("css selector", "details.long summary").click()
    assert table.is_displayed()


def test_a_wide_figure_scrolls_inside_its_box_on_a_phone(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["crowd"], width=390)
    widths = "const box = document.querySelector('.drawing'); return [box.scrollWidth, box.clientWidth]"
    needed, there = browser.execute_script(widths)
    assert needed >= 700 > there


def test_every_table_downloads_as_csv(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    for page in pages.values():
        visit(browser, page)
        tables = [holder.get_attribute("id") for holder in browser.find_elements("css selector", ".table")]
        matrices = browser.find_elements(
            "css selector", ".matrix table"
        )  # of findings that the last table has
        assert len(tables) == len(browser.find_elements("tag name", "table")) - len(matrices)
        for table in tables:
            folder = tmp_path / page.stem / page.parent.name / table
            folder.mkdir(parents=True)
            shown = browser.execute_script(
                "return document.querySelectorAll(`#${arguments[0]} tbody tr`).length", table
            )
            assert len(downloaded(browser, table, folder)) == shown

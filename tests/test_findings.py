"""Findings as a table: what is text stays text in a spreadsheet, what is a number stays a number."""

import csv
import io
import re
from pathlib import Path

import pytest

import glasshouse
from glasshouse.findings import FORMULA, Finding, as_csv, csv_cell


def table(**entries):
    """The one row of the table of a finding with these entries."""
    finding = Finding(
        **{"source": "audit", "cell": "c", "family": "f", "metric": "m", "value": 0.5} | entries
    )
    (row,) = csv.DictReader(io.StringIO(as_csv([finding]), newline=""))
    return row


@pytest.mark.parametrize("text", [
    '=HYPERLINK("http://a.example","b")', "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1",
    "-x",
])  # fmt: skip
def test_text_that_a_spreadsheet_would_run_begins_with_an_apostrophe(text):
    row = table(data=text, attack=text, note=text, assumes=(text,))
    assert {row[name] for name in ("data", "attack", "note", "assumes")} == {f"'{text}"}


@pytest.mark.parametrize(
    "text", ["digits", "a=1", "pgd(eps=0.1)", "", "-0.5", "+1e-3", 'say "a, b"', "a\nb", "'a"]
)
def test_other_text_is_written_as_it_is(text):
    assert table(data=text)["data"] == text


def test_numbers_stay_numbers():
    row = table(value=-0.25, low=-1e-300, high=1.0, n=7, chance=None)
    assert (row["value"], row["low"], row["high"], row["n"], row["chance"]) == (
        "-0.25",
        "-1e-300",
        "1.0",
        "7",
        "",
    )


def test_characters_that_no_file_can_hold_are_spelled_out():
    assert as_csv([Finding(source="a", cell="\ud800", family="f", metric="m", value=1.0)]).encode()


def test_the_pages_own_tables_follow_the_same_rule():
    script = (Path(glasshouse.__file__).parent / "report" / "templates" / "page.js").read_text()
    (rule,) = re.findall(
        r"/\^(\[.*?\])/\.test\(text\) && Number\.isNaN\(Number\(text\)\) \? `'\$\{text\}`", script
    )
    assert rule == FORMULA.pattern
    (quoting,) = re.findall(r"return /(\[.*?\])/\.test\(safe\)", script)
    assert all(csv_cell(f"a{mark}").startswith('"') == bool(re.search(quoting, mark)) for mark in '",\r\n;\t')

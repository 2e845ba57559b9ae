"""The page that benchmarks write their tables to."""

from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def fill(section: str, measured: str) -> None:
    """Print what was measured, and put it between the marks of `section` on the page."""
    print(measured)
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    page = PAGE.read_text()
    before, after = page.partition(begin)[0], page.partition(end)[2]
    PAGE.write_text(f"{before}{begin}\n\n{measured}\n\n{end}{after}")

"""What a finished run leaves: its findings as JSON and CSV, the curves, the versions, and the page."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding, as_csv, rows
from glasshouse.report import write_report
from glasshouse.store import write_json, write_text


@dataclass(frozen=True)
class Results:
    """The findings of a run, and the folder that holds them and the report."""

    folder: Path
    findings: tuple[Finding, ...]

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"


def write_results(folder: Path, findings: Sequence[Finding], exhibits: Exhibits) -> Results:
    """Write everything a reader of the run wants; the page comes last and marks the run as finished."""
    write_json(folder / "curves.json", exhibits.model_dump(mode="json"))
    write_json(folder / "environment.json", versions())
    write_text(folder / "results.csv", as_csv(findings))
    write_json(folder / "results.json", rows(findings))
    write_report(folder)
    return Results(folder, tuple(findings))


def versions() -> dict[str, str]:
    """The versions of everything that could change a number."""
    packages = ("glasshouse", "torch", "numpy", "scipy", "scikit-learn", "joblib")
    found = {package: metadata.version(package) for package in packages}
    return {"python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"} | found

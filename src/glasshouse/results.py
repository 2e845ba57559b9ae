"""What a finished run leaves: its findings as JSON and CSV, the exhibits and the versions."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding, as_csv, rows
from glasshouse.store import checksum_of_file, write_json, write_text

CHECKED = ("results.json", "curves.json", "study.json")
"""The files that the page is made of."""


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
    """Write everything that the page is made of."""
    write_json(folder / "curves.json", exhibits.model_dump(mode="json"))
    write_json(folder / "environment.json", versions())
    write_text(folder / "results.csv", as_csv(findings))
    write_json(folder / "results.json", rows(findings))
    written = [folder / name for name in CHECKED if (folder / name).exists()]
    write_json(folder / "checksums.json", {file.name: checksum_of_file(file) for file in written})
    return Results(folder, tuple(findings))


def versions() -> dict[str, str]:
    """The versions of everything that could change a number."""
    packages = ("glasshouse", "torch", "numpy", "scipy", "scikit-learn", "joblib")
    machine = {"python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"}
    return machine | {package: metadata.version(package) for package in packages}

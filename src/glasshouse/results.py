"""What a finished run leaves: its findings as JSON and CSV, the exhibits, the scores and the versions."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glasshouse.errors import BadInput
from glasshouse.exhibits import Division, Exhibits, Records
from glasshouse.findings import Finding, as_csv, rows
from glasshouse.runfolder import read_origin
from glasshouse.scores import SCORES, read_scores, write_scores
from glasshouse.store import checksum_of_file, read_text, write_json, write_text
from glasshouse.verdicts.metrics import CENTRAL

if TYPE_CHECKING:
    from glasshouse.showing import Differences

CHECKED = ("results.json", "curves.json", "study.json")
"""The files that the page is made of."""

RECORD = "the record"
"""What an audit of a record names among what it was given."""

OPEN = ("adversary", "strategy", "cell", "seed")
"""What may tell the scores of one attack apart."""


@dataclass(frozen=True)
class Results:
    """The findings of a run, and the folder that holds them and the report.

    A notebook shows it as a table, `print` as a few lines.
    """

    folder: Path
    findings: tuple[Finding, ...]

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"

    @cached_property
    def records(self) -> tuple[Records, ...]:
        """What each attack said of each record, from `scores.npz`: an entry for each attack and seed."""
        return read_scores(self.folder / SCORES)

    @cached_property
    def same_records(self) -> bool:
        """Whether every seed was asked about the same records."""
        curves = read_text(self.folder / "curves.json")
        divisions = () if curves is None else Exhibits.model_validate_json(curves).division
        return seeds_share_records(divisions, read_text(self.folder / "config.toml"))

    def frame(self) -> Any:
        """The findings as a data frame of pandas, a row for each; it takes pandas, which is no dependency."""
        return _pandas().DataFrame(rows(self.findings))

    def scores(
        self,
        attack: str,
        *,
        adversary: str | None = None,
        defence: str = "none",
        strategy: str | None = None,
        seed: int | None = None,
    ) -> Records:
        """What one attack said of each record; `scores("lira")["score"]` is an array, a number for each.

        What is left open must have one value; the model trained centrally takes `strategy="central"`.
        """
        wanted = {"attack": attack, "adversary": adversary, "defence": defence, "seed": seed}
        asked = {
            name: value for name, value in (wanted | {"strategy": strategy}).items() if value is not None
        }
        found = [one for one in self.records if all(getattr(one, key) == asked[key] for key in asked)]
        if strategy is None:
            found = [one for one in found if one.strategy != CENTRAL] or found
        if len(found) == 1:
            return found[0]
        given = ", ".join(f"{name} {value!r}" for name, value in asked.items())
        if found:
            values = {key: sorted({str(getattr(one, key)) for one in found}) for key in OPEN}
            choices = "; ".join(f"{key}: {', '.join(some)}" for key, some in values.items() if len(some) > 1)
            raise BadInput(f"there are {len(found)} sets of scores with {given}; name one of {choices}")
        named = sorted({one.attack for one in self.records if one.attack})
        raise BadInput(
            f"no scores of single records with {given}; attacks with scores: {', '.join(named) or 'none'}"
        )

    def compare(
        self, first: str, second: str, *, metric: str | None = None, adversary: str | None = None
    ) -> "Differences":
        """The second attack less the first on the same records, or the second defence less the first.

        Over all seeds, with a 95% interval; a difference for each adversary, defence and metric they share.
        """
        from glasshouse.showing import Differences
        from glasshouse.verdicts.pairing import between

        asked: Any = {"metric": metric, "adversary": adversary, "same_records": self.same_records}
        return Differences(between(first, second, self.findings, self.records, **asked))

    def __str__(self) -> str:
        from glasshouse.showing import summary

        return summary(self)

    def __repr__(self) -> str:
        seeds = {finding.seed for finding in self.findings}
        return (
            f"<{type(self).__name__}: {len(self.findings)} findings of {len(seeds)} seed(s) in {self.folder}>"
        )

    def _repr_html_(self) -> str:
        from glasshouse.showing import as_html

        return as_html(self)


def seeds_share_records(divisions: Sequence[Division], config: str | None) -> bool:
    """Whether every seed of a run was asked about the same records: given by the data, a split or a record.

    Else each seed drew them anew.
    """
    if divisions:
        return not all(one.redrawn and one.held_out != "given" for one in divisions)
    return RECORD in read_origin(config or "")[1]


def write_results(folder: Path, findings: Sequence[Finding], exhibits: Exhibits) -> Results:
    """Write everything that the page is made of, and the scores of single records beside it."""
    write_json(folder / "curves.json", exhibits.model_dump(mode="json", exclude={"records"}))
    write_json(folder / "environment.json", versions())
    write_scores(folder / SCORES, exhibits.records)
    write_text(folder / "results.csv", as_csv(findings))
    write_json(folder / "results.json", rows(findings))
    written = [folder / name for name in (*CHECKED, SCORES) if (folder / name).exists()]
    write_json(folder / "checksums.json", {file.name: checksum_of_file(file) for file in written})
    return Results(folder, tuple(findings))


def versions() -> dict[str, str]:
    """The versions of everything that could change a number."""
    packages = ("glasshouse", "torch", "numpy", "scipy", "scikit-learn", "joblib")
    machine = {"python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"}
    return machine | {package: metadata.version(package) for package in packages}


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError as error:
        raise BadInput(
            "a data frame takes pandas, which is not installed; run `pip install pandas`, or read results.csv"
        ) from error

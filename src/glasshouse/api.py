"""What the commands do, as functions: the work, then the page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from glasshouse.auditing.finished import finished_setting
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import EXAMPLE, Setting
from glasshouse.errors import BadInput
from glasshouse.report import write_report
from glasshouse.results import Results
from glasshouse.studies.run import run_study


def audit(
    setting: Setting | None = None,
    *,
    dataset: Any = None,
    model: nn.Module | None = None,
    members: Any = None,
    nonmembers: Any = None,
    auxiliary: Any = None,
    seeds: int = 1,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Results:
    """Audit a federation and write its report; without arguments, that of the embedded example.

    `dataset` (a `Dataset`, `Images` or arrays (x, y)) and `model` stand in for what `setting` names. An
    unfinished run in the folder `out` is continued. With `seeds` above 1 training and attacks are repeated.

    A finished model is audited as it is where `members` and `nonmembers` are given, and perhaps `auxiliary`
    images for attacks that need them: each the path of an .npz file, `Images` or arrays (x, y).
    """
    parts = _parts(members, nonmembers, auxiliary)
    if setting is None:
        named = dataset is not None or model is not None
        setting = finished_setting() if parts is not None else Setting() if named else EXAMPLE
    results = run_audit(
        setting,
        dataset=dataset,
        model=model,
        parts=parts,
        seeds=seeds,
        out=out,
        workers=workers,
        engine=engine,
        quiet=quiet,
    )
    write_report(results.folder)
    return results


def study(name: str, **options: Any) -> Results:
    """Run a study and write its page; the options are those of `run_study`."""
    results = run_study(name, **options)
    write_report(results.folder)
    return results


def _parts(members: Any, nonmembers: Any, auxiliary: Any) -> Mapping[str, Any] | None:
    """Who was trained on, where a finished model is audited."""
    if members is None and nonmembers is None and auxiliary is None:
        return None
    if members is None or nonmembers is None:
        missing = "members" if members is None else "nonmembers"
        raise BadInput(f"a finished model is audited with members and nonmembers; give {missing} too")
    parts = {"members": members, "nonmembers": nonmembers, "auxiliary": auxiliary}
    return {name: part for name, part in parts.items() if part is not None}

"""The main job as one function."""

from pathlib import Path
from typing import Any

from torch import nn

from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import EXAMPLE, Setting
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.results import Results, write_results
from glasshouse.store import open_run, slug


def audit(
    setting: Setting | None = None,
    *,
    dataset: Any = None,
    model: nn.Module | None = None,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Results:
    """Audit a federation and write its report; without arguments, that of the embedded example.

    `dataset` (a `Dataset`, `Images` or arrays (x, y)) and `model` stand in for what `setting` names. An
    unfinished run in the folder `out` is continued.
    """
    default = EXAMPLE if dataset is None and model is None else Setting()
    experiment = prepare(setting or default, dataset, model)
    stem = f"audit-{slug(Path(experiment.setting.data.name).stem)}"
    folder = open_run(Path(out) if out is not None else None, stem, experiment.config())
    with Progress(quiet=quiet) as progress, Engine(workers, engine) as running:
        findings, exhibits = run_battery(experiment, folder, running, progress)
    return write_results(folder.path, findings, exhibits)

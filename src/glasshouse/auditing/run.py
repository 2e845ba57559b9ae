"""The main job: one experiment with one seed or several, and what it leaves in its folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from glasshouse.auditing.battery import run_battery
from glasshouse.auditing.experiment import Experiment, prepare
from glasshouse.auditing.finished import audit_finished, prepare_finished
from glasshouse.auditing.planning.plan import AuditPlan, Planner, announce
from glasshouse.auditing.search import Search
from glasshouse.auditing.setting import Setting
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.registry import newly_imported
from glasshouse.results import Results, write_results
from glasshouse.runfolder import RunFolder, open_run
from glasshouse.store import slug

Battery = Callable[..., tuple[list[Finding], Exhibits]]


def run_audit(
    setting: Setting,
    *,
    dataset: Any = None,
    model: nn.Module | None = None,
    parts: Mapping[str, Any] | None = None,
    seeds: int = 1,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Results:
    """Do what is missing of an audit, and write its findings and exhibits.

    With `parts` (members, non-members, auxiliary images) a finished model is audited as it is. Further seeds
    repeat everything that is drawn or trained; their work lies in folders of their own.
    """

    def prepared(seed: int) -> Experiment:
        return _prepared(setting.model_copy(update={"seed": seed}), dataset, model, parts)

    experiment = prepared(setting.seed)
    battery: Battery = run_battery if parts is None else audit_finished
    if parts is None and setting.audit.searches:
        battery = Search()
    stem = f"audit-{slug(Path(experiment.setting.data.name).stem)}"
    folder = open_run(Path(out) if out is not None else None, stem, experiment.config(), experiment.origin)
    with Progress(quiet=quiet) as progress, Engine(workers, engine, say=progress.say) as running:
        for line in filter(None, (*newly_imported(), folder.news)):
            progress.say(line)
        if not quiet:
            planner = Planner(
                experiment, running, seeds=seeds, finished=parts is not None, folder=folder.path
            )
            announce(planner, progress)
        findings, exhibits = battery(experiment, folder, running, progress)
        others = range(setting.seed + 1, setting.seed + seeds)
        for seed in progress.track(others, "seeds", seeds - 1) if others else ():
            repeated = prepared(seed)
            below = RunFolder(folder.path / "seeds" / str(seed), repeated.config(), repeated.origin)
            more, drawn = battery(repeated, below, running, progress, detailed=False)
            findings, exhibits = findings + more, exhibits + drawn
    if parts is None:
        exhibits += Exhibits(division=(experiment.division,))
    return write_results(folder.path, findings, exhibits)


def plan_audit(
    setting: Setting,
    *,
    dataset: Any = None,
    model: nn.Module | None = None,
    parts: Mapping[str, Any] | None = None,
    seeds: int = 1,
    workers: int | None = None,
    engine: str = "processes",
) -> AuditPlan:
    """What `run_audit` would do and how long that would take; it trains a few steps, and writes nothing."""
    experiment = _prepared(setting, dataset, model, parts)
    with Progress() as progress, Engine(workers, engine, say=progress.say) as running:
        for line in newly_imported():
            progress.say(line)
        plan, _ = Planner(experiment, running, seeds=seeds, finished=parts is not None).timed()
    return plan


def _prepared(
    setting: Setting, dataset: Any, model: nn.Module | None, parts: Mapping[str, Any] | None
) -> Experiment:
    return prepare(setting, dataset, model) if parts is None else prepare_finished(setting, parts, model)

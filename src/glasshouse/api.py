"""What the commands do, as functions: the work, then the page."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from torch import nn

from glasshouse.auditing.finished import finished_setting
from glasshouse.auditing.inspecting.reading import Told
from glasshouse.auditing.inspecting.run import Inspection, run_inspection
from glasshouse.auditing.planning.plan import AuditPlan
from glasshouse.auditing.recorded.run import plan_record, run_record
from glasshouse.auditing.run import plan_audit, run_audit
from glasshouse.auditing.setting import EXAMPLE, Setting
from glasshouse.data.parts import read_pair
from glasshouse.defences.policies.privacy_score import as_precision
from glasshouse.defences.policies.run import Found, run_search
from glasshouse.defences.policies.search import Plan
from glasshouse.errors import BadInput
from glasshouse.models.shapes import Shape
from glasshouse.report import compare_runs, write_report
from glasshouse.report.compare import ComparedRuns
from glasshouse.report.run import read_run
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

    `dataset` (a `Dataset`, `Images`, arrays (x, y) or by name, or a `Split`) and `model` stand in for what
    `setting` names. An
    unfinished run in the folder `out` is continued. With `seeds` above 1 training and attacks are repeated.

    A finished model is audited as it is where `members` and `nonmembers` are given, and perhaps `auxiliary`
    images for attacks that need them: each the path of an .npz file, `Images` or arrays (x, y).
    """
    parts = _parts(members, nonmembers, auxiliary)
    results = run_audit(
        setting or _default(dataset, model, parts),
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


def audit_record(
    record: Path | str,
    setting: Setting | None = None,
    *,
    model: str | nn.Module | None = None,
    members: Any = None,
    nonmembers: Any = None,
    auxiliary: Any = None,
    seeds: int = 1,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Results:
    """Audit the rounds of a federation that were recorded in the folder `record`, and write a report.

    Every adversary whose access the record supports attacks; the others are listed with the reason. `model`
    is the network, or its name, where the record names none of Glasshouse's own. `members` are what the
    clients held, `nonmembers` like images that they did not, `auxiliary` such that an adversary may have:
    each the path of an .npz file, `Images` or arrays (x, y). Members may have a third array, `client`, with
    the name of each one's client. The setting says which attacks run; of its training nothing is used, as the
    record tells it.
    """
    results = run_record(
        Path(record),
        setting,
        model=deepcopy(model),
        given=_given(members, nonmembers, auxiliary),
        seeds=seeds,
        out=None if out is None else Path(out),
        workers=workers,
        engine=engine,
        quiet=quiet,
    )
    write_report(results.folder)
    return results


def plan_of_record(
    record: Path | str,
    setting: Setting | None = None,
    *,
    model: str | nn.Module | None = None,
    members: Any = None,
    nonmembers: Any = None,
    auxiliary: Any = None,
    seeds: int = 1,
) -> AuditPlan:
    """What `audit_record` would do with the same arguments; print it. Nothing is written."""
    given = _given(members, nonmembers, auxiliary)
    return plan_record(Path(record), setting, model=model, given=given, seeds=seeds)


def plan(
    setting: Setting | None = None,
    *,
    dataset: Any = None,
    model: nn.Module | None = None,
    members: Any = None,
    nonmembers: Any = None,
    auxiliary: Any = None,
    seeds: int = 1,
    workers: int | None = None,
    engine: str = "processes",
) -> AuditPlan:
    """What `audit` would do with the same arguments, and how long it would take; print it.

    It trains a few steps to see how fast this machine is on this model. Nothing is written.
    """
    parts = _parts(members, nonmembers, auxiliary)
    return plan_audit(
        setting or _default(dataset, model, parts),
        dataset=dataset,
        model=model,
        parts=parts,
        seeds=seeds,
        workers=workers,
        engine=engine,
    )


def _default(dataset: Any, model: Any, parts: Mapping[str, Any] | None) -> Setting:
    """The setting where none is given."""
    if parts is not None:
        return finished_setting()
    return EXAMPLE if dataset is None and model is None else Setting()


def inspect_update(
    update: Path | str,
    before: Path | str,
    model: str | nn.Module,
    *,
    shape: Shape | None = None,
    classes: int = 10,
    kind: str = "auto",
    samples: int | None = None,
    lr: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    mode: str = "auto",
    truth: Any = None,
    auxiliary: Any = None,
    **options: Any,
) -> Inspection:
    """What one recorded update gives away, as findings and a page.

    `update` is a file of a gradient, a delta or the weights after training, `before` one of the weights that
    the client received. `samples`, `lr`, `epochs`, `batch_size` and `mode` ("train" or "eval") are how it
    trained, where that is known.
    `truth` and `auxiliary` are paths of .npz files, `Images` or arrays (x, y); `shape` may be theirs.
    Further options are those of `run_inspection`: `seconds`, `seed`, `out`, `workers`, `engine`, `quiet`.
    """
    parts = {name: part for name, part in (("truth", truth), ("auxiliary", auxiliary)) if part is not None}
    if shape is None:
        shape = _shape_of(parts)
    told = Told(kind, samples, lr, epochs, batch_size, mode)
    out = options.pop("out", None)
    results = run_inspection(
        Path(update),
        Path(before),
        model if isinstance(model, str) else deepcopy(model),
        shape,
        classes,
        told,
        parts=parts,
        out=None if out is None else Path(out),
        **options,
    )
    write_report(results.folder)
    return results


def _shape_of(parts: Mapping[str, Any]) -> Shape:
    """The shape of the images that were given."""
    for name, part in parts.items():
        channels, height, width = read_pair(name, part)[0].shape[1:]
        return channels, height, width
    raise BadInput("no shape of an image is given; give it like 1x28x28 with --shape, or images with --truth")


def search_policy(
    data: Any = "digits",
    model: str | nn.Module = "lenet",
    *,
    candidates: int = 300,
    keep: int = 10,
    images: int = 100,
    precision: str = "float32",
    seed: int = 0,
    **options: Any,
) -> Found:
    """Find a transformation policy for a model and data, and write it to a policy file.

    `data` is a `Dataset`, `Images`, arrays (x, y) or a name of them, `model` a network or a name. Further
    options are those of `run_search`: `out`, `workers`, `engine`, `quiet`.
    """
    plan = Plan(candidates=candidates, keep=keep, images=images, seed=seed, precision=as_precision(precision))
    return run_search(data, model, plan, **options)


def read_results(folder: Path | str) -> Results:
    """The results of a finished run, read back from its folder."""
    return Results(Path(folder), read_run(Path(folder)).rows)


def compare(*runs: Results | Path | str) -> ComparedRuns:
    """Runs beside each other, as results or as folders: in what they differ, and what that changes.

    `print` shows it in some lines; `.differences` has a `Difference`, second less first, for each number that
    leads for an attack, `.differing` every setting in which they are not alike.
    """
    return compare_runs([run.folder if isinstance(run, Results) else Path(run) for run in runs])


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
    return _given(members, nonmembers, auxiliary)


def _given(members: Any, nonmembers: Any, auxiliary: Any) -> Mapping[str, Any]:
    """Those of the images that are given."""
    parts = {"members": members, "nonmembers": nonmembers, "auxiliary": auxiliary}
    return {name: part for name, part in parts.items() if part is not None}

"""A record, audited: the attacks that it supports, and the others with the reason."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glasshouse.access import Access
from glasshouse.attacks import ATTACKS
from glasshouse.auditing.attacking import Assignment, assignments, attack_target
from glasshouse.auditing.battery import DISCLOSED, outcome_by_image, utility, within_budget
from glasshouse.auditing.curvature import sharpness
from glasshouse.auditing.examine import Examination
from glasshouse.auditing.experiment import Experiment, fingerprint
from glasshouse.auditing.planning.chores import Planned
from glasshouse.auditing.planning.plan import AuditPlan, Trained
from glasshouse.auditing.planning.words import short
from glasshouse.auditing.recorded.case import Recorded, prepare_recorded, recorded_setting
from glasshouse.auditing.recorded.reasons import why_not
from glasshouse.auditing.recorded.unjudged import statement, unjudged
from glasshouse.auditing.setting import Setting, as_toml
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import Target, Variant
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import hits
from glasshouse.models.loading import users_own
from glasshouse.progress import Progress
from glasshouse.provenance import Origin, own_code, versions
from glasshouse.recording.description import FILE
from glasshouse.recording.reader import Recording
from glasshouse.registry import newly_imported, parse_spec
from glasshouse.results import Results, write_results
from glasshouse.runfolder import RunFolder, open_run
from glasshouse.store import checksum_of_file, slug

UNTIMED = "a record is attacked as it is, and nothing is trained that could be timed before"
UNTIMED_SHADOWS = "how long the shadow models of a record take is not known before they are trained"

SERVERS = ("curious server", "blind server")
"""Who goes by what the record tells of the training."""


def run_record(
    record: Path,
    setting: Setting | None = None,
    *,
    model: nn.Module | str | None = None,
    given: Mapping[str, Any] | None = None,
    seeds: int = 1,
    out: Path | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Results:
    """Attack what `record` holds, and write findings and exhibits; `given` are the images of `read_holders`.

    Further seeds repeat what is drawn: shadow models, and the attacks' own chance.
    """
    first = setting or recorded_setting()

    def prepared(seed: int) -> Recorded:
        return prepare_recorded(record, first.model_copy(update={"seed": seed}), given or {}, model)

    recorded = prepared(first.seed)
    origin = _origin(recorded, given or {}, model)
    stem = f"audit-{slug(recorded.setting.data.name)}"
    folder = open_run(out, stem, _config(recorded), origin)
    with Progress(quiet=quiet) as progress, Engine(workers, engine, say=progress.say) as running:
        for line in filter(None, (*newly_imported(), folder.news, *short(plan_of(recorded)))):
            progress.say(line)
        findings, exhibits = _battery(recorded, folder, running, progress, detailed=True)
        for seed in progress.track(range(first.seed + 1, first.seed + seeds), "seeds", seeds - 1):
            repeated = prepared(seed)
            below = RunFolder(folder.path / "seeds" / str(seed), _config(repeated), origin)
            more, drawn = _battery(repeated, below, running, progress, detailed=False)
            findings, exhibits = findings + more, exhibits + drawn
    return write_results(folder.path, findings, exhibits)


def plan_record(
    record: Path,
    setting: Setting | None = None,
    *,
    model: nn.Module | str | None = None,
    given: Mapping[str, Any] | None = None,
    seeds: int = 1,
) -> AuditPlan:
    """What `run_record` would do; it reads the record, and writes nothing."""
    recorded = prepare_recorded(record, setting or recorded_setting(), given or {}, model)
    return dataclasses.replace(plan_of(recorded), seeds=seeds)


def plan_of(recorded: Recorded) -> AuditPlan:
    """The attacks on a record, those that cannot be tried with the reason."""
    setting = recorded.setting
    attacks = tuple(
        Planned(_variant(recorded), one, why_not(recorded, one.spec, one.access)) for one in _tried(setting)
    )
    shadows = tuple(_shadows(recorded, attacks))
    return AuditPlan(
        title=f"{setting.model.name} on the record {setting.data.name}, seed {setting.seed}",
        data=tuple(recorded.news),
        trained=shadows,
        attacks=attacks,
        untimed=UNTIMED_SHADOWS if shadows else UNTIMED,
    )


def _shadows(recorded: Recorded, attacks: Sequence[Planned]) -> Iterator[Trained]:
    """A row for each kind of shadow models that is asked for."""
    if recorded.experiment is None:
        return
    running = [planned for planned in attacks if planned.reason is None]
    asked = {name for planned in running for name in ATTACKS.make(planned.assignment.spec).knows}
    shadowing = Shadowing(recorded.experiment, Path(), Engine(1), Progress(quiet=True))
    for name, kind in (("shadows", "offline"), ("online_shadows", "online")):
        if name in asked:
            training, sets = shadowing.planned(kind, "none")
            on = " on candidates" if kind == "online" else ""
            clients = training.clients
            yield Trained(f"shadow models{on}", len(sets), training.rounds, clients, clients)


def _battery(
    recorded: Recorded, folder: RunFolder, engine: Engine, progress: Progress, *, detailed: bool
) -> tuple[list[Finding], Exhibits]:
    """All findings: of the model, of the attacks, and why some of these were not tried."""
    findings, exhibits = [], Exhibits()
    reasons = {one: why_not(recorded, one.spec, one.access) for one in _tried(recorded.setting)}
    able = [one for one, reason in reasons.items() if reason is None]
    target, experiment = _target(recorded), recorded.experiment
    if experiment is not None:
        if len(target.hits):
            findings.append(utility(target, recorded.news))
            exhibits += Exhibits(records=(outcome_by_image(target),))
        if target.case.model is not None:
            findings += sharpness(experiment, target, folder)
        shadowing = Shadowing(experiment, folder.work / "shadows", engine, progress)
        for attacked in attack_target(
            target, able, shadowing.under("none"), folder, engine, progress, detailed=detailed
        ):
            findings += attacked.findings
            exhibits += attacked.exhibits
    else:
        findings, found = unjudged(recorded, able)
        exhibits = Exhibits(statements=(statement(recorded, found, reasons),))
    for one, reason in reasons.items():
        if reason is not None:
            findings += _untried(recorded, one.spec, one.access, reason)
    return [_with_assumptions(finding, recorded.assumed) for finding in findings], exhibits


def _tried(setting: Setting) -> list[Assignment]:
    """The attacks of the setting, and those on what a record does not hold."""
    named = {parse_spec(spec, "attack")[0] for spec in setting.audit.attacks}
    more = [name for name in DISCLOSED if name not in named]
    return assignments(dict.fromkeys([*within_budget(setting), *more]))


def _target(recorded: Recorded) -> Target:
    case = recorded.case
    test = None if case.truth is None else case.truth.test
    right = np.zeros(0, dtype=bool)
    if case.model is not None and test is not None:
        right = hits(case.model, test).numpy()
    return Target(_variant(recorded), case, right, recorded.setting.training.rounds)


def _variant(recorded: Recorded) -> Variant:
    return Variant(recorded.case.subject.strategy or "recorded", "none")


def _untried(recorded: Recorded, spec: str, adversary: type[Access], reason: str) -> list[Finding]:
    family = ATTACKS.make(spec).family
    return Examination(recorded.case, spec, adversary, family, reason=reason).findings()


def _with_assumptions(finding: Finding, assumed: str) -> Finding:
    """What a server's number rests on beyond the record stands in its note."""
    if not assumed or finding.adversary not in SERVERS or finding.value is None:
        return finding
    return dataclasses.replace(finding, note="; ".join(filter(None, (finding.note, assumed))))


def _config(recorded: Recorded) -> str:
    return "".join(f"# {line}\n" for line in recorded.news) + as_toml(recorded.setting)


def _origin(recorded: Recorded, given: Mapping[str, Any], model: nn.Module | str | None) -> Origin:
    """What the numbers come from: the files of the record, and the images that were given."""
    named = [model] if isinstance(model, str) and users_own(model) else []
    images = {name: _digest_of_images(source) for name, source in given.items()}
    candidates = {} if recorded.experiment is None else {"data": _digest_of_candidates(recorded.experiment)}
    return Origin(
        code=versions() | own_code(named),
        parts=own_code(recorded.setting.audit.attacks),
        given={"the record": _digest(recorded.recording)} | candidates | images,
    )


def _digest(recording: Recording) -> str:
    """A digest of all files that the record consists of, and of nothing else that lies in its folder."""
    digest = hashlib.blake2b(digest_size=8)
    for file in _files(recording):
        digest.update(f"{file.relative_to(recording.folder)} {checksum_of_file(file)}\n".encode())
    return digest.hexdigest()


def _files(recording: Recording) -> Iterator[Path]:
    yield recording.folder / FILE
    for one in recording.rounds:
        yield one.sent.parent / "round.json"
        yield from one.files
    if recording.final is not None:
        yield recording.final


def _digest_of_candidates(experiment: Experiment) -> str:
    """A digest of the members and non-members, and of their places, by which exhibits name them."""
    split = experiment.split
    places = np.concatenate([split.members, split.nonmembers])
    images = split.pool[places]
    return fingerprint(images.x, images.y, torch.from_numpy(places))


def _digest_of_images(source: Any) -> str:
    if isinstance(source, str | Path):
        return checksum_of_file(Path(source).expanduser())
    arrays = (source.x, source.y) if hasattr(source, "x") else source
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()

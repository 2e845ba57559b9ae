"""Attacks on one target of an audit: each is a job for a worker, and is kept when it is done."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from glasshouse.access import Access, ServerAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import accesses, kind_of, shadow_kinds
from glasshouse.auditing.case import Case, ShadowSource
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.gallery import save_pictures
from glasshouse.auditing.shadowing import ready
from glasshouse.auditing.target import Target
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.shared import Shared
from glasshouse.measures.estimate import proportion
from glasshouse.progress import Progress
from glasshouse.provenance import work_name
from glasshouse.runfolder import RunFolder
from glasshouse.store import slug
from glasshouse.vetting.vet import vet

MOST_VETTED = 2
"""As many of the models that a crafting server sent are vetted."""


@dataclass(frozen=True)
class Assignment:
    """An attack, and the access that it gets."""

    spec: str
    access: type[Access]

    @cached_property
    def name(self) -> str:
        """A name for its files."""
        return f"{work_name(self.spec, [self.spec])}-by-{slug(self.access.adversary)}"

    @property
    def exchanges(self) -> bool:
        """Whether the adversary exchanges models with live clients."""
        return issubclass(self.access, ServerAccess)

    @property
    def meets_central(self) -> bool:
        """Whether the attack asks what a model trained in one place can be compared by: its test images."""
        kind = kind_of(ATTACKS.make(self.spec))
        return kind is not None and kind.about == "test images"


@dataclass(frozen=True)
class Attacked:
    """What one attack on one target leaves.

    `outcomes` are of evasion attacks: for each eps, 0 for no attack, a character for each candidate, 1 where
    the model is right, else 0.
    """

    findings: tuple[Finding, ...]
    exhibits: Exhibits
    outcomes: dict[float, str]

    def right(self) -> dict[float, np.ndarray]:
        """The outcomes as arrays of truth values."""
        return {eps: np.array([hit == "1" for hit in hits]) for eps, hits in self.outcomes.items()}


@dataclass(frozen=True, eq=False)
class _Job:
    case: Shared
    assignment: Assignment
    name: str
    pictures: Path | None


def assignments(specs: Iterable[str]) -> list[Assignment]:
    """Every attack with each access that it works with."""
    return [Assignment(spec, access) for spec in specs for access in accesses(ATTACKS.make(spec))]


def attack_target(
    target: Target,
    tried: Sequence[Assignment],
    source: ShadowSource,
    folder: RunFolder,
    engine: Engine,
    progress: Progress,
    *,
    detailed: bool,
) -> list[Attacked]:
    """What each of the attacks leaves; those that are not in the folder run now, several at once.

    Where it is `detailed`, pictures are shown, risks broken down by client and round, and models vetted.
    """
    names = {assignment: f"{target.variant.stem}/{assignment.name}" for assignment in tried}
    kept = {assignment: folder.kept(name, Attacked) for assignment, name in names.items()}
    missing = [assignment for assignment, attacked in kept.items() if attacked is None]
    if missing:
        asked = [shadow_kinds(ATTACKS.make(assignment.spec)).values() for assignment in missing]
        shadows = ready(source, dict.fromkeys(itertools.chain(*asked)))
        case = dataclasses.replace(target.case, shadows=shadows)
        with progress.task(f"attacks on {target.variant.name}", len(missing)) as task:
            for assignment, attacked in _attacks(case, missing, folder.path if detailed else None, engine):
                folder.keep(names[assignment], attacked)
                kept[assignment] = attacked
                task.advance()
    return [attacked for attacked in kept.values() if attacked is not None]


def _attacks(
    case: Case, tried: Sequence[Assignment], pictures: Path | None, engine: Engine
) -> Iterator[tuple[Assignment, Attacked]]:
    """The attacks, a worker for each; those that exchange models with clients, which take longest, first."""
    order = sorted(tried, key=lambda assignment: not assignment.exchanges)
    shared = engine.share(case)
    jobs = [_Job(shared, assignment, assignment.name, pictures) for assignment in order]
    yield from zip(order, engine.map_local(_attack, jobs))
    shared.remove()


def _attack(job: _Job) -> Attacked:
    case: Case = job.case.get()
    assignment, detailed = job.assignment, job.pictures is not None
    examination = examine(case, assignment.spec, assignment.access, detailed=detailed)
    findings, exhibits = examination.findings(), examination.exhibits()
    outcomes: dict[float, str] = {}
    if examination.judgement is not None:
        judgement = examination.judgement
        outcomes = {
            eps: "".join("01"[int(hit)] for hit in right) for eps, right in judgement.outcomes.items()
        }
        if job.pictures is not None:
            pictures = save_pictures(judgement.pictures, job.pictures, job.name)
            exhibits += Exhibits(gallery=pictures).about(**examination.labels)
    if detailed and examination.sent and examination.reason is None:
        findings.append(_vetted(examination))
    return Attacked(tuple(findings), exhibits, outcomes)


def _vetted(examination: Examination) -> Finding:
    """What clients that vet would have said to the models that the attack sent."""
    shape = examination.case.protocol.shape
    verdicts = [vet(sent.model(), shape) for sent in examination.sent[:MOST_VETTED]]
    share = proportion(sum(verdict.crafted for verdict in verdicts), len(verdicts))
    alarming = [sign for verdict in verdicts for sign in verdict.signs if sign.alarming]
    reasons = {(sign.name, sign.layer): str(sign) for sign in alarming}  # models differ in the numbers
    return examination.case.subject.finding(
        "vetting",
        "vet-alarm",
        share,
        cell=examination.cell,
        adversary=examination.adversary.adversary,
        attack=examination.spec,
        note="; ".join(reasons.values()) or None,
    )

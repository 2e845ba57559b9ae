"""What is measured in each cell: a training, or attacks on single images."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from glasshouse.access import UpdateAccess
from glasshouse.auditing.gallery import save_png
from glasshouse.findings import Finding, Subject
from glasshouse.learning.evaluate import hits
from glasshouse.measures.comparing import share_difference
from glasshouse.measures.estimate import Estimate, mean, proportion
from glasshouse.measures.pictures import CAP
from glasshouse.store import keep, kept, slug
from glasshouse.studies.address import Address
from glasshouse.studies.ats import printed
from glasshouse.studies.ats.printed import NONE
from glasshouse.studies.ats.training import Learner, Trained, materials_of, trained
from glasshouse.studies.ats.victims import (
    UPPER_BOUND,
    Attempt,
    GradSim,
    attack,
    averages,
    knows_defence,
    make_victim,
)
from glasshouse.studies.study import Workplace

TRANSFORMED, VISIBLE, ORIGINAL = "psnr-to-transformed", "psnr-to-visible", "psnr-to-original"
ACCURACY, COST, SCORE, OVERLAP = "test-accuracy", "accuracy-cost", "privacy-score", "best-five-overlap"
SIMILARITIES = ("all", "shallow", "deep")

of_image = "{}-of-image-{}".format
gradsim = "gradsim-{}".format
at_step = "{}-at-step-{}".format
after_epoch = "{}-after-epoch-{}".format
score_of = "privacy-score-of-{}".format
"""Metrics of one image, of some of the layers, at one step of a search, after one epoch, of one index."""

PICTURED = 4
"""Images of each attack that are kept as pictures."""


@dataclass(frozen=True)
class ArmCell(Address):
    """A place of the grid: a table or figure, data, a network, and one arm of the comparison."""

    pattern: ClassVar[str] = "{group}/{data}/{model}/{arm}"
    group: str
    data: str
    model: str
    arm: str

    def at(self, **changes: str) -> str:
        """The name of another cell."""
        return str(replace(self, **changes))


TRAINING, TRANSFERRED, DRAWN = "training", "training-transferred", "training-figure-4"
OF_TRAINING = {TRAINING: ("table-1", "table-6"), TRANSFERRED: ("table-4", "table-5"), DRAWN: ("figure-4",)}
"""Groups of trainings, and where their models stand: with policies for these data, for others, with none."""


def training_of(place: ArmCell) -> ArmCell:
    """The cell in which the model was trained that a cell attacks."""
    groups = (group for group, attacked in OF_TRAINING.items() if place.group in attacked)
    return replace(place, group=next(groups, TRAINING))


@dataclass(frozen=True)
class Task:
    """Attacks on the updates of the first `images` test images, which clients made under `defence`.

    The model that they received was `trained_under` the same defence, or under none. `specs` are the attacks;
    `course` keeps how alike gradients were during those that do not know the defence. The clients' loss is
    multiplied by `factor`.
    """

    address: ArmCell
    learner: Learner
    defence: str
    trained_under: str
    specs: tuple[str, ...]
    images: int
    factor: float = 1.0
    course: bool = False

    @property
    def subject(self) -> Subject:
        return Subject(
            source="",
            defence=self.defence,
            data=self.learner.data,
            model=self.learner.model,
            note=f"{UPPER_BOUND}; {self.learner.note}",
        )


def known_accuracy(address: ArmCell) -> float | None:
    """What the papers print for a training."""
    return printed.printed_accuracy(OF_TRAINING[address.group], address.data, address.model, address.arm)


def known_numbers(task: Task, spec: str) -> printed.Printed | None:
    """What they print for an attack, which does not know the defence."""
    if knows_defence(spec) or task.factor != 1:
        return None
    place = task.address
    return printed.of_attack(place.group, place.data, place.model, place.arm, spec.partition("(")[0])


def training_cell(address: ArmCell, learner: Learner, defence: str, place: Workplace) -> list[Finding]:
    """The accuracy under one defence, what that costs on the same test images, and the course by epoch."""
    subject = Subject(source="", defence=defence, data=learner.data, model=learner.model, note=learner.note)
    model, test = trained(learner, defence, place), materials_of(learner).test
    right = hits(model.network, test).numpy()
    share = proportion(int(right.sum()), len(right))
    chance = test.label_counts().max().item() / len(test)
    findings = [subject.finding("utility", ACCURACY, share, chance=chance, printed=known_accuracy(address))]
    if address.arm != NONE:
        undefended = hits(trained(learner, "none", place).network, test).numpy()
        findings.append(subject.finding("utility", COST, share_difference(undefended, right)))
    for number, epoch in enumerate(model.course, start=1):
        for metric, value in ((ACCURACY, epoch.accuracy), ("train-loss", epoch.loss)):
            reached = Estimate(value, None, None, len(test))
            if not math.isfinite(value):
                reached = Estimate(None, None, None, len(test), "the training diverged")
            findings.append(subject.finding("utility", after_epoch(metric, number), reached))
    return findings


def attack_cell(task: Task, place: Workplace) -> list[Finding]:
    """Every attack on every image: means over images, and each image in its own row."""
    model = trained(task.learner, task.trained_under, place)
    findings: list[Finding] = []
    for spec in task.specs:
        attempts: list[Attempt] = []
        for number in range(task.images):
            attempt = _attempt(task, model, spec, number, place)
            if isinstance(attempt, Finding):
                findings.append(attempt)
                break
            attempts.append(attempt)
        else:
            findings += _findings(task, spec, attempts)
    return findings


def _attempt(task: Task, model: Trained, spec: str, number: int, place: Workplace) -> Attempt | Finding:
    """One attack on one image, kept as soon as it is done; the finding that says why it cannot run."""
    stem = f"{form_of(spec)}-{number:03d}-{slug(spec)}"
    file = place.folder / f"{stem}.json"
    done = kept(file, Attempt)
    if done is not None:
        return done
    victim = make_victim(model, task.defence, number, place.seed, factor=task.factor, subject=task.subject)
    auxiliary = materials_of(task.learner).train
    course = task.course and not knows_defence(spec)
    attacked = attack(victim, spec, auxiliary, place.seed, course=course)
    if not isinstance(attacked, tuple):
        return attacked.findings()[0]
    attempt, guess = attacked
    if number < PICTURED:
        pictures = {"original": victim.original, "transformed": victim.transformed}
        for name, image in {**pictures, form_of(spec): guess}.items():
            save_png(image[0].float(), place.folder / picture_name(name, number))
    keep(file, attempt)
    return attempt


def form_of(spec: str) -> str:
    """The name of an attack without options, and whether it knows the defence, or averages over it."""
    known = "-average" if averages(spec) else "-adaptive" if knows_defence(spec) else ""
    return spec.partition("(")[0] + known


def picture_name(what: str, number: int) -> str:
    """The file of a picture in a cell's folder."""
    return f"{what}-{number:03d}.png"


def _findings(task: Task, spec: str, attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """What one attack made of all images, then of each."""
    first = attempts[0]
    seconds = round(sum(attempt.seconds for attempt in attempts), 3)
    common, own = _notes([attempt.note for attempt in attempts])
    finding = partial(
        task.subject.finding,
        "reconstruction",
        adversary=UpdateAccess.adversary,
        attack=spec,
        assumes=first.granted,
    )
    known = known_numbers(task, spec)
    values = {
        TRANSFORMED: [(attempt.to_transformed, attempt.blind_to_transformed) for attempt in attempts],
        VISIBLE: [(attempt.to_visible, attempt.blind_to_visible) for attempt in attempts],
        ORIGINAL: [(attempt.to_original, attempt.blind_to_original) for attempt in attempts],
    }
    for metric, pairs in values.items():
        psnr, blind = np.array(pairs).T
        yield finding(
            metric,
            mean(psnr.tolist(), bounds=(0.0, CAP)),
            chance=float(blind.mean()),
            note=common,
            printed=known.psnr if known and metric == TRANSFORMED else None,
            seconds=seconds,
        )
        for number, (one, guessed) in enumerate(pairs):
            alone = Estimate(one, None, None, 1)
            yield finding(of_image(metric, number), alone, chance=guessed, note=own[number])
    if first.course:
        yield from _similarities([attempt.course for attempt in attempts], finding)


def _notes(notes: Sequence[str | None]) -> tuple[str | None, list[str | None]]:
    """What all of some notes say, and what each of them says beyond that.

    >>> _notes(["labels given; shifted", "labels given", None])
    (None, ['labels given; shifted', 'labels given', None])
    >>> _notes(["labels given; shifted", "labels given"])
    ('labels given', ['shifted', None])
    """
    parts = [note.split("; ") if note else [] for note in notes]
    common = [part for part in parts[0] if all(part in other for other in parts)]
    own = ["; ".join(part for part in each if part not in common) or None for each in parts]
    return "; ".join(common) or None, own


def _similarities(courses: Sequence[Sequence[GradSim]], finding: "partial[Finding]") -> Iterator[Finding]:
    """GradSim at each step that was kept, over images, and of each image at the end."""
    by_step: dict[int, list[GradSim]] = {}
    for course in courses:
        for point in course:
            by_step.setdefault(point.step, []).append(point)
    for part in SIMILARITIES:
        for step, points in by_step.items():
            alike = mean([getattr(point, part) for point in points], bounds=(-1.0, 1.0))
            yield finding(at_step(gradsim(part), step), alike)
        for number, course in enumerate(courses):
            last = Estimate(getattr(course[-1], part), None, None, 1)
            yield finding(of_image(gradsim(part), number), last)

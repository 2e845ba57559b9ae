"""The figures of the replication, and what attackers rebuilt beside the originals."""

from collections.abc import Iterator, Sequence

from glasshouse.access import UpdateAccess
from glasshouse.defences.policies.transformations import LIBRARY
from glasshouse.exhibits import Chart, Picture, Series
from glasshouse.measures.estimate import Estimate
from glasshouse.measures.trends import pearson
from glasshouse.studies.ats import cells
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.cells import (
    ORIGINAL,
    SIMILARITIES,
    TRAINING,
    TRANSFORMED,
    ArmCell,
    at_step,
    gradsim,
)
from glasshouse.studies.ats.layout import plain_form, scores
from glasshouse.studies.ats.measured import Row
from glasshouse.studies.ats.printed import (
    BEST_FIVE,
    HYBRID,
    NONE,
    PAPERS,
    PEARSON,
    RANDOM,
    REPLICATED_PEARSON,
)
from glasshouse.studies.ats.score_claims import score_and_psnr
from glasshouse.studies.ats.victims import knows_defence
from glasshouse.studies.measured import Measured
from glasshouse.studies.showing import bracketed, chart, series_of

DRAWN = (NONE, RANDOM, HYBRID)
LIKENESS = {
    "all": "Figure 2: likeness of gradients during the attack",
    "shallow": "Figure 7: likeness of shallow layers' gradients during the attack",
    "deep": "Figure 7: likeness of deep layers' gradients during the attack",
}
COURSES = {cells.ACCURACY: "test accuracy", "train-loss": "training loss"}
GALLERY = 3
"""Images that the gallery shows of each arm."""


def charts(measured: Measured) -> Iterator[Chart]:
    """Everything that the finished cells allow."""
    for row in reading.rows_of(measured, "table-1"):
        for part in SIMILARITIES:
            yield from _likeness(measured, row, part)
    for row, arms in reading.rows_of(measured, TRAINING).items():
        for metric in COURSES:
            yield from _convergence(measured, row, [arm for arm in DRAWN if arm in arms], metric)
    for (data, model), arms in reading.rows_of(measured, "figure-8").items():
        yield _library(measured, ArmCell("figure-8", data, model, arms[0]))
    yield from _correlation(measured)


def _likeness(measured: Measured, row: Row, part: str) -> Iterator[Chart]:
    """GradSim at the steps that searches keep, for the one who does not know the defence."""
    series, steps = [], list[int]()
    for arm in DRAWN:
        cell = str(ArmCell("table-1", *row, arm))
        attack = plain_form(measured, cell, PAPERS)
        if attack is None:
            continue
        steps = steps or kept_steps(measured, cell, attack)
        metrics = [at_step(gradsim(part), step) for step in steps]
        series.append(series_of(arm, [measured.estimate(cell, attack, metric) for metric in metrics]))
    if steps:
        title = f"{LIKENESS[part]}: {', '.join(row)}"
        axes = ("step of the search", "mean cosine of gradients")
        note = f"{PAPERS}: the best image so far, against what was sent; means over images, t interval."
        yield chart(f"likeness-{part}-{'-'.join(row)}", title, axes, map(str, steps), series, note=note)


def kept_steps(measured: Measured, cell: str, attack: str) -> list[int]:
    """The steps at which a search kept its image."""
    head = at_step(gradsim("all"), "")
    metrics = measured.metrics(cell, attack)
    return [int(metric.removeprefix(head)) for metric in metrics if metric.startswith(head)]


def _convergence(measured: Measured, row: Row, arms: Sequence[str], metric: str) -> Iterator[Chart]:
    """Figure 6: a training with and without policies, epoch by epoch."""
    courses = {arm: reading.course(measured, str(ArmCell(TRAINING, *row, arm)), metric) for arm in arms}
    epochs = max(map(len, courses.values()), default=0)
    if epochs < 2 or len(courses) < 2:
        return
    series = [
        Series(name=arm, values=(*values, *[None] * (epochs - len(values))))
        for arm, values in courses.items()
    ]
    words = COURSES[metric]
    title = f"Figure 6: {words} by epoch, {', '.join(row)}"
    categories = [str(epoch) for epoch in range(1, epochs + 1)]
    yield chart(
        f"convergence-{metric}-{'-'.join(row)}", title, ("epoch", words), categories, series, kind="curves"
    )


def _library(measured: Measured, cell: ArmCell) -> Chart:
    """Figure 8: S_pri of each transformation; the paper's five are a series of their own."""
    scored = scores(measured, str(cell))

    def shown(best: bool) -> list[Estimate | None]:
        return [score if (index in BEST_FIVE) == best else None for index, score in scored.items()]

    title = f"Figure 8: privacy scores of the transformations, {cell.data}, {cell.model}"
    categories = [f"{index} {LIBRARY[index]}" for index in scored]
    series = [series_of("the paper's best five", shown(True)), series_of("others", shown(False))]
    name, axes = f"library-{cell.data}-{cell.model}", ("transformation", "S_pri")
    return chart(name, title, axes, categories, series, kind="bars")


def _correlation(measured: Measured) -> Iterator[Chart]:
    """Figure 4: policies drawn at random, in the order of their scores."""
    points = score_and_psnr(measured)
    if not points:
        return
    ranked = sorted(points, key=lambda cell: points[cell][0])
    series = []
    for metric, words in ((TRANSFORMED, "to the transformed image"), (ORIGINAL, "to the original")):
        reached = [measured.value(str(cell), plain_form(measured, str(cell)), metric) for cell in ranked]
        series.append(Series(name=words, values=tuple(reached)))
    r = pearson(*zip(*points.values()))
    note = (
        f"Policies drawn at random, by rising S_pri. Pearson's r {bracketed(r, '+.3f')}, n = {r.n} policies; "
        f"printed {PEARSON}, replicated {REPLICATED_PEARSON}."
    )
    categories = [f"{points[cell][0]:.3f}" for cell in ranked]
    title = "Figure 4: S_pri and the PSNR of the attack"
    yield chart("figure-4", title, ("S_pri", "PSNR (dB)"), categories, series, note=note)


def pictures(measured: Measured) -> Iterator[Picture]:
    """Figure 5: what each attacker seeks, and what it made of it, with and without policies.

    Who knows the policy seeks the original, who does not the transformed image.
    """
    for (data, model), arms in reading.rows_of(measured, "table-1").items():
        for arm in arms:
            cell = str(ArmCell("table-1", data, model, arm))
            for attack in reading.forms(measured, cell):
                yield from _pictured(measured, cell, attack)


def _pictured(measured: Measured, cell: str, attack: str) -> Iterator[Picture]:
    folder = f"work/{cell}/seed-{measured.seeds[0]:04d}"
    exposed = reading.exposed_to(measured, cell, attack)
    place = ArmCell.parse(cell)
    assert place is not None
    seeks, shown = "the pixels that come from the original", "transformed"
    if knows_defence(attack):
        seeks, shown = "the original", "original"
    for image in list(exposed.psnr)[:GALLERY]:
        yield Picture(
            cell=cell,
            adversary=UpdateAccess.adversary,
            attack=attack,
            caption=f"image {image}, {place.data}, {place.model}, policy: {place.arm}",
            original=f"{folder}/{cells.picture_name(shown, image)}",
            result=f"{folder}/{cells.picture_name(cells.form_of(attack), image)}",
            note=f"{exposed.psnr[image]:.1f} dB to {seeks}",
        )

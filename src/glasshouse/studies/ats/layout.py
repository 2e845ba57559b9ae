"""The tables of the replication, printed and measured side by side, and one row for each image."""

from collections.abc import Iterator, Sequence

from glasshouse.defences.policies.transformations import LIBRARY
from glasshouse.exhibits import StudyTable
from glasshouse.measures.estimate import Estimate
from glasshouse.spelling import DASH
from glasshouse.studies.ats import cells
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.cells import ORIGINAL, TRANSFORMED, ArmCell, training_of
from glasshouse.studies.ats.measured import estimated, less
from glasshouse.studies.ats.printed import (
    BEST_FIVE,
    HYBRID,
    NONE,
    PAPERS,
    TABLE_2,
    Printed,
    beside,
    printed,
)
from glasshouse.studies.ats.victims import averages, knows_defence
from glasshouse.studies.measured import Measured
from glasshouse.studies.showing import bracketed, table

HEADINGS = {
    "table-1": "Tables 1 and 3",
    "table-4": "Table 4, policies searched on CIFAR-100",
    "table-5": "Table 5, policies searched on CIFAR-100",
    "table-6": "Table 6, other defences",
    "crop-and-flip": "Switch: the undocumented crop and flip",
}
"""The groups whose arms are rows of a table."""

HALVED = "half-loss"
"""The group of attacks on gradients of half the loss."""

SCORED = (
    "PSNR in dB: mean over images, with its t interval. Printed numbers are against the transformed image, "
    "and of the papers' wider networks (R: of their ResNet20, where none is printed for this one); after a "
    "semicolon those of Table 3. Who knows the defence returns the original; transformed like the victim's "
    "image it is compared with that."
)
GAINED = (
    "Lower by: the same search without a defence minus with it, paired over the same images. The gain is "
    "above a blind guess, the mean training image, in what an attack seeks: the original, or, by who does "
    "not know the defence, those pixels of the transformed image that come from it (the guess is moved "
    "likewise). The attack of the highest gain is the judge."
)


def tables(measured: Measured) -> Iterator[StudyTable]:
    """Everything that the finished cells allow."""
    for group in HEADINGS:
        for (data, model), arms in reading.rows_of(measured, group).items():
            places = _places(measured, group, data, model, arms)
            yield _attacked(measured, places)
            yield _trained(measured, places)
    for data, model in reading.rows_of(measured, "table-2"):
        yield _attacks(measured, data, model)
    for data, model in reading.rows_of(measured, HALVED):
        yield _halved(measured, data, model)
    for (data, model), arms in reading.rows_of(measured, "table-1").items():
        yield _images(measured, data, model, arms)
    for (data, model), arms in reading.rows_of(measured, "figure-8").items():
        yield _best(measured, ArmCell("figure-8", data, model, arms[0]))


def plain_form(measured: Measured, cell: str, name: str | None = None) -> str | None:
    """The attack called `name`, or the first, that does not know the defence, with its options."""
    return next((spec for spec in reading.forms(measured, cell, name) if not knows_defence(spec)), None)


def decibels(measured: Measured, cell: str, attack: str | None, metric: str) -> str:
    """A PSNR with its interval, or a dash."""
    return DASH if attack is None else bracketed(measured.estimate(cell, attack, metric), ".2f")


def _number(value: float | None, form: str = ".2f") -> str:
    return DASH if value is None else format(value, form)


def _spread(row: Printed | None) -> str:
    return DASH if row is None else f"{row.psnr:.2f} \N{PLUS-MINUS SIGN} {row.spread:.2f}"


def _places(measured: Measured, group: str, data: str, model: str, arms: Sequence[str]) -> list[ArmCell]:
    """The cells of a group; where it has no undefended arm, those of Table 1 without and with the hybrid."""
    places = [ArmCell(group, data, model, arm) for arm in arms]
    if NONE not in arms:
        places = [*(ArmCell("table-1", data, model, arm) for arm in (NONE, HYBRID)), *places]
    return [place for place in places if str(place) in measured.cells]


def _attacked(measured: Measured, places: Sequence[ArmCell]) -> StudyTable:
    """A row for each defence and attack."""
    place = places[-1]
    undefended = next((place for place in places if place.arm == NONE), None)
    rows = [
        _attack_row(measured, place, spec, undefended)
        for place in places
        for spec in reading.forms(measured, str(place))
    ]
    columns = (
        *("defence", "attack", "printed", "to transformed", "lower by"),
        *("to original", "lower by (original)", "gain", "judge"),
    )
    title = f"{HEADINGS[place.group]}: {place.data}, {place.model}, what was rebuilt"
    name = f"{place.group}-{place.data}-{place.model}"
    return table(name, title, columns, rows, f"{SCORED} {GAINED} {_counted(measured, places)}")


def _attack_row(measured: Measured, place: ArmCell, spec: str, undefended: ArmCell | None) -> tuple[str, ...]:
    cell = str(place)
    found, worst = reading.exposed_to(measured, cell, spec), reading.exposure(measured, cell)
    return (
        place.arm,
        _short(spec),
        _known(place, spec),
        decibels(measured, cell, spec, TRANSFORMED),
        lowered(measured, place, spec, undefended, TRANSFORMED),
        decibels(measured, cell, spec, ORIGINAL),
        lowered(measured, place, spec, undefended, ORIGINAL),
        bracketed(estimated(found.excess.values()), "+.2f"),
        "yes" if worst is not None and worst.attack == spec else "",
    )


def _short(spec: str) -> str:
    """An attack without its options, which the note below the table names."""
    known = ", averages over the defence" if averages(spec) else ", knows the defence"
    return spec.partition("(")[0] + (known if knows_defence(spec) else "")


def lowered(measured: Measured, place: ArmCell, spec: str, undefended: ArmCell | None, metric: str) -> str:
    """What a defence takes from the PSNR of a search, paired over images; a dash where there is none."""
    if undefended is None or place.arm == NONE:
        return DASH
    same = plain_form(measured, str(undefended), spec.partition("(")[0])
    if same is None:
        return DASH
    attacked = ((str(undefended), same), (str(place), spec))
    without, defended = (reading.by_image(measured, *one, metric) for one in attacked)
    return bracketed(estimated(less(without, defended).values()), "+.2f")


def _known(place: ArmCell, spec: str) -> str:
    """The printed PSNR of the papers' own attack, which does not know the defence."""
    if knows_defence(spec):
        return DASH
    name = spec.partition("(")[0]
    own = _beside(place.group, place.data, place.model, place.arm, name)
    third = printed("table-3", place.data, place.model, place.arm) if place.group == "table-1" else None
    return own + (f"; {_spread(third)}" if third and name == PAPERS else "")


def _beside(table: str, data: str, model: str, arm: str, attack: str) -> str:
    """What is printed for this network, or for the papers' ResNet20, which is marked."""
    known = beside(table, data, model, arm, attack)
    if known is None:
        return DASH
    row, own = known
    return _spread(row) + ("" if own else " (R)")


def _counted(measured: Measured, places: Sequence[ArmCell]) -> str:
    """The number of images, and the attacks with their options."""
    attacks = [(str(place), spec) for place in places for spec in reading.forms(measured, str(place))]
    found = [measured.measure(cell, spec, TRANSFORMED) for cell, spec in attacks]
    counts = sorted({one.n for one in found if one is not None and one.n})
    specs = ", ".join(dict.fromkeys(spec for _, spec in attacks))
    return f"n = {' or '.join(map(str, counts))} images. Attacks: {specs}." if counts else ""


def _trained(measured: Measured, places: Sequence[ArmCell]) -> StudyTable:
    """What each defence costs."""
    rows = []
    for place in places:
        training = str(training_of(place))
        accuracy = measured.measure(training, None, cells.ACCURACY)
        rows.append(
            (
                place.arm,
                _number(accuracy.row.printed if accuracy else None, ".3f"),
                bracketed(measured.estimate(training, None, cells.ACCURACY)),
                bracketed(measured.estimate(training, None, cells.COST), "+.3f"),
                _number(accuracy.chance if accuracy else None, ".3f"),
            )
        )
    place = places[-1]
    columns = ("defence", "accuracy, printed", "accuracy", "cost", "blind guess")
    title = f"{HEADINGS[place.group]}: {place.data}, {place.model}, what the models learned"
    note = "Test accuracy; the cost is against no defence, on the same test images."
    return table(f"accuracy-{place.group}-{place.data}-{place.model}", title, columns, rows, note)


def _blind(measured: Measured, cell: str, attack: str | None) -> float | None:
    found = measured.measure(cell, attack, TRANSFORMED)
    return None if found is None else found.chance


def _attacks(measured: Measured, data: str, model: str) -> StudyTable:
    """Table 2: an attack in each row; the usual one comes from Table 1, on its own images."""
    rows = []
    for name in TABLE_2[NONE]:
        group = "table-1" if name == PAPERS else "table-2"
        places = [ArmCell(group, data, model, arm) for arm in (NONE, HYBRID)]
        specs = [plain_form(measured, str(place), name) for place in places]
        if specs[0] is None:
            continue
        without, exposed = (reading.exposure(measured, str(place), name) for place in places)
        lost = estimated(less(without.excess, exposed.excess).values()) if without and exposed else None
        rows.append(
            (
                specs[0],
                *(_beside("table-2", data, model, arm, name) for arm in (NONE, HYBRID)),
                *(decibels(measured, str(place), spec, TRANSFORMED) for place, spec in zip(places, specs)),
                _number(_blind(measured, str(places[0]), specs[0])),
                bracketed(lost, "+.2f"),
            )
        )
    columns = ("attack", "none, printed", "hybrid, printed", "none", "hybrid", "blind, none", "gain lost")
    return table(
        f"table-2-{data}-{model}",
        f"Table 2: {data}, {model}, six attacks",
        columns,
        rows,
        f"{SCORED} {GAINED}",
    )


def _halved(measured: Measured, data: str, model: str) -> StudyTable:
    """Gradients of half the loss beside whole ones, on the same images."""
    rows = []
    cell = ArmCell(HALVED, data, model, NONE)
    for spec in measured.attacks(str(cell), TRANSFORMED):
        group = "table-1" if spec.partition("(")[0] == PAPERS else "table-2"
        halved, whole = (
            reading.by_image(measured, name, spec, TRANSFORMED) for name in (str(cell), cell.at(group=group))
        )
        rows.append(
            (
                spec,
                decibels(measured, cell.at(group=group), spec, TRANSFORMED),
                decibels(measured, str(cell), spec, TRANSFORMED),
                bracketed(estimated(less(halved, whole).values()), "+.2f"),
            )
        )
    columns = ("attack", "whole loss", "half the loss", "difference, paired")
    note = "Without a defence. The angle between gradients does not see a factor; their distance does."
    title = f"Switch: the victim's loss multiplied by 0.5: {data}, {model}"
    return table(f"{HALVED}-{data}-{model}", title, columns, rows, note)


def _images(measured: Measured, data: str, model: str, arms: Sequence[str]) -> StudyTable:
    """The same images in all columns: each attacker by what it seeks."""
    columns, values = ["image"], []
    for arm in arms:
        cell = str(ArmCell("table-1", data, model, arm))
        for spec in reading.forms(measured, cell):
            columns.append(f"{arm}, {cells.form_of(spec)}")
            values.append(reading.exposed_to(measured, cell, spec).psnr)
    images = sorted(set().union(*values)) if values else []
    rows = [(str(image), *(_number(column.get(image), ".1f") for column in values)) for image in images]
    note = (
        "PSNR in dB: to the pixels of the transformed image that come from the original, and of who knows "
        "the defence to the original."
    )
    return table(f"images-{data}-{model}", f"Each image: {data}, {model}", columns, rows, note)


def _best(measured: Measured, cell: ArmCell) -> StudyTable:
    """Figure 8: the transformations of the lowest scores."""
    scored = scores(measured, str(cell))
    ranked = sorted(scored, key=lambda index: scored[index].value or 0.0)
    rows = [
        (
            place,
            f"{index} ({LIBRARY[index]})",
            bracketed(scored[index]),
            "yes" if index in BEST_FIVE else "no",
        )
        for place, index in enumerate(ranked[: 2 * len(BEST_FIVE)], start=1)
    ]
    columns = ("place", "transformation", "S_pri", "among the paper's five")
    note = "Lower is better; of transformations that do the same, the first index stands for all."
    return table(
        f"best-{cell.data}-{cell.model}", f"Figure 8: {cell.data}, {cell.model}", columns, rows, note
    )


def scores(measured: Measured, cell: str) -> dict[int, Estimate]:
    """S_pri of each transformation that was scored, by its index."""
    found = {index: measured.estimate(cell, None, cells.score_of(index)) for index in range(len(LIBRARY))}
    return {index: score for index, score in found.items() if score is not None}

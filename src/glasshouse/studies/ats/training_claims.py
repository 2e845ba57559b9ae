"""The claims about accuracy: what policies and their hybrid cost, and what crop and flip bring."""

from collections.abc import Iterator
from math import inf

from glasshouse.studies.ats import cells
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.arms import CROPPED
from glasshouse.studies.ats.cells import ACCURACY, TRAINING, ArmCell
from glasshouse.studies.ats.claimed import CROPPING, NEGLIGIBLE, REHEARSAL, REHEARSED, UNLEARNED
from glasshouse.studies.ats.printed import HYBRID, NONE
from glasshouse.studies.measured import Measured, apart
from glasshouse.verdicts.claims import Part


def costs(measured: Measured) -> Iterator[Part]:
    """What each selected policy costs on the same test images."""
    for place, arms in _trained(measured):
        for arm in arms:
            cell = place.at(arm=arm)
            if seeds := measured.seeds_of(cell, None, cells.COST):
                yield Part(
                    f"{place.data}, {place.model}, {arm}",
                    "test accuracy without a policy minus with it",
                    list(seeds.values()),
                    [str(place), cell],
                    holds=(-inf, NEGLIGIBLE),
                    refuted=(NEGLIGIBLE, inf),
                    barred=_barred(measured, place),
                    same_records=True,
                )


def kept_by_hybrid(measured: Measured) -> Iterator[Part]:
    """The hybrid's accuracy beside that of each of its policies alone."""
    for place, arms in _trained(measured):
        for arm in arms:
            if arm != HYBRID and HYBRID in arms:
                names = place.at(arm=HYBRID), place.at(arm=arm)
                yield Part(
                    f"{place.data}, {place.model}, {arm}",
                    "test accuracy with the hybrid minus with one policy",
                    apart(*(measured.seeds_of(name, None, ACCURACY) for name in names)),
                    names,
                    holds=(-NEGLIGIBLE, inf),
                    refuted=(-inf, -NEGLIGIBLE),
                    barred=_barred(measured, place),
                    same_records=True,
                )


def augmented(measured: Measured) -> Iterator[Part]:
    """What crop and flip bring, without a policy and with the hybrid, once training with them is at rest."""
    for data, model in reading.rows_of(measured, CROPPED):
        place = ArmCell(TRAINING, data, model, CROPPED)
        for arm, cropped in ((NONE, CROPPED), (HYBRID, f"{HYBRID}-{CROPPED}")):
            names = place.at(arm=cropped), place.at(arm=arm)
            if all(name in measured.cells for name in names):
                yield Part(
                    f"{data}, {model}, {arm}",
                    "test accuracy with crop and flip minus without",
                    apart(*(measured.seeds_of(name, None, ACCURACY) for name in names)),
                    names,
                    holds=(CROPPING, inf),
                    refuted=(-inf, CROPPING),
                    barred=_barred(measured, place),
                    same_records=True,
                )


def _trained(measured: Measured) -> Iterator[tuple[ArmCell, list[str]]]:
    """The undefended training of each row of Table 1, and the selected arms of the row."""
    for (data, model), arms in reading.rows_of(measured, "table-1").items():
        yield ArmCell(TRAINING, data, model, NONE), reading.selected(arms)


def _barred(measured: Measured, place: ArmCell) -> str:
    """Why accuracies of a row say nothing, by the model at `place`."""
    if place.data == REHEARSAL:
        return REHEARSED
    return "" if reading.learned_enough(measured, place) else UNLEARNED

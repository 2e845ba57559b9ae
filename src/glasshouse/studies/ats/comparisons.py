"""Data sets and networks with and without policies, and why nothing may follow from one."""

from collections.abc import Iterator
from dataclasses import dataclass

from glasshouse.measures.estimate import Estimate
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.cells import ArmCell, training_of
from glasshouse.studies.ats.claimed import CLEAR, POWERLESS, REHEARSAL, REHEARSED, UNDERTRAINED
from glasshouse.studies.ats.measured import ByImage, Exposure, estimated
from glasshouse.studies.ats.printed import NONE
from glasshouse.studies.measured import Measured
from glasshouse.studies.showing import bracketed


@dataclass(frozen=True)
class Comparison:
    """What attacks reached on a data set and a network: `undefended`, and under each selected arm.

    `barred` says why nothing follows: neither where the undefended model was not trained far enough, nor
    where the search shows nothing without a defence, can a defence be seen to help.
    """

    place: ArmCell
    undefended: Exposure
    arms: dict[str, Exposure]
    barred: str

    def where(self, *more: str) -> str:
        """The setting in words, and what is further said of it."""
        return ", ".join((self.place.data, self.place.model, *more))

    def cells(self, *arms: str) -> list[str]:
        """The training and the attack without a defence, and the attacks under some arms."""
        training = training_of(self.place)
        return [str(training), str(self.place), *(self.place.at(arm=arm) for arm in arms)]


def comparisons(measured: Measured, group: str, name: str | None = None) -> Iterator[Comparison]:
    """Those of a table, by attacks called `name` or by all, where both sides of them are done."""
    for (data, model), arms in reading.rows_of(measured, group).items():
        place = ArmCell(group, data, model, NONE)
        exposures = {
            arm: found
            for arm in arms
            if (found := reading.exposure(measured, place.at(arm=arm), name)) is not None
        }
        undefended = exposures.pop(NONE, None)
        chosen = {arm: exposures[arm] for arm in reading.selected(exposures)}
        if undefended is not None and chosen:
            yield Comparison(place, undefended, chosen, barred(measured, place, undefended))


def barred(measured: Measured, place: ArmCell, undefended: Exposure | None) -> str:
    """Why nothing follows from what is attacked at a place; nothing where something does."""
    if place.data == REHEARSAL:
        return REHEARSED
    if not reading.far_enough(measured, place.group, place.data, place.model):
        return UNDERTRAINED
    excess = estimated(undefended.excess.values()) if undefended else None
    if excess is None or (excess.value or 0.0) <= CLEAR or (excess.low or 0.0) <= 0:
        return f"{POWERLESS} ({bracketed(excess, '+.2f')} dB)"
    return ""


def observed(values: ByImage) -> list[Estimate]:
    """Each image as one observation: their interval is then Student's at whatever level is asked for."""
    return [Estimate(value, None, None, 1) for value in values.values()]

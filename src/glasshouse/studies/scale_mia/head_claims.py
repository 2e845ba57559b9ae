"""What quantised secure aggregation does to the attack as published, and to one with a better head."""

from collections.abc import Sequence
from math import inf

from glasshouse.measures.estimate import Estimate, combined
from glasshouse.studies.judging import POSITIVE, judged
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import printed
from glasshouse.studies.scale_mia.cells import CODED, DRAWN, IDEAL, PUBLISHED, RATE, HeadsCell
from glasshouse.studies.scale_mia.printed import HARDLY
from glasshouse.verdicts.claims import Verdict

CLOSE = 0.03
"""A rate within three points of the printed one is as printed."""

BITS = "22"
"""The bits of an entry that protocols use by default."""

LARGE = 256
"""From this batch size on a sample's share of an update is below the protocol's rounding."""


def head_verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim."""
    return [_as_printed(measured), _stopped(measured), _brought_back(measured)]


def _as_printed(measured: Measured) -> Verdict:
    claim = f"As published it recovers what is printed, from an exact sum (to {CLOSE:g} on average)"
    gaps, shown = [], []
    for cell in _through(measured, IDEAL):
        rate = measured.measure(str(cell), PUBLISHED, RATE)
        known = printed.table_4(rate.row.model or "", rate.row.data or "", cell.batch) if rate else {}
        estimate = measured.estimate(str(cell), PUBLISHED, RATE)
        if RATE in known and estimate is not None and estimate.value is not None:
            gaps.append(_less(estimate, known[RATE]))
            shown.append(f"{estimate.value:.3f} for {known[RATE]:.3f} at {cell.batch}")
    drawn = _rates(measured, DRAWN, IDEAL)
    of = f", n = {{n}} samples ({', '.join(shown)}; with the last layer drawn{drawn})"
    regions = {"holds": (-CLOSE, CLOSE), "refuted": (-inf, -CLOSE)}
    return judged(claim, _mean(gaps), len(gaps), "measured minus printed", of, **regions)


def _stopped(measured: Measured) -> Verdict:
    """Stopped is what finds no more than the blind guess."""
    claim = (
        f"Quantised secure aggregation ({BITS} bits) stops it as published (mean of batches from {LARGE} on)"
    )
    gains = []
    for cell in _through(measured, BITS):
        rate = measured.measure(str(cell), PUBLISHED, RATE)
        estimate = measured.estimate(str(cell), PUBLISHED, RATE)
        if cell.batch >= LARGE and rate is not None and estimate is not None:
            gains.append(_less(estimate, rate.chance or 0.0))
    of = (
        f", n = {{n}} samples in {len(gains)} batch sizes; rates{_rates(measured, PUBLISHED)}; "
        f"with the last layer drawn, as in the authors' code{_rates(measured, DRAWN)}"
    )
    regions = {"holds": (-inf, 0.0), "refuted": POSITIVE}
    return judged(claim, _mean(gains), len(gains), "recovery rate above the blind guess's", of, **regions)


def _brought_back(measured: Measured) -> Verdict:
    """Our head through the rounded sum, against the published one through the exact sum."""
    claim = f"A better attacker brings it back: our head at {BITS} bits, the published one in an exact sum"
    gains = []
    for cell in _through(measured, BITS):
        ours = measured.estimate(str(cell), CODED, RATE)
        theirs = measured.estimate(str(HeadsCell(IDEAL, cell.batch)), PUBLISHED, RATE)
        if ours is not None and theirs is not None:
            gains.append(combined([ours, theirs], [1.0, -1.0]))
    of = f", n = {{n}} samples in {len(gains)} batch sizes; rates{_rates(measured, CODED)}"
    regions = {"holds": (-HARDLY, inf), "refuted": (-inf, -HARDLY)}
    return judged(claim, _mean(gains), len(gains), "ours minus the published head's", of, **regions)


def _through(measured: Measured, channel: str) -> list[HeadsCell]:
    found = [cell for cell in HeadsCell.matching(measured.cells) if cell.channel == channel]
    return sorted(found, key=lambda cell: cell.batch)


def _rates(measured: Measured, attack: str, channel: str = BITS) -> str:
    """An attack's rates through a channel, in words."""
    values = {cell.batch: measured.value(str(cell), attack, RATE) for cell in _through(measured, channel)}
    known = [f" {value:.3f} at {batch}" for batch, value in values.items() if value is not None]
    return ",".join(known) or " unknown"


def _mean(estimates: Sequence[Estimate]) -> Estimate | None:
    return combined(estimates, [1 / len(estimates)] * len(estimates)) if estimates else None


def _less(estimate: Estimate, number: float) -> Estimate:
    """The estimate minus a number that is known exactly."""
    return combined([estimate, Estimate(number, number, number, 0)], [1.0, -1.0])

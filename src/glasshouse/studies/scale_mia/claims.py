"""The paper's claims, and two assumptions it makes, against what was measured.

All but those on heads are measured with `scale-mia-coded`, which works through a real protocol too.
"""

from collections.abc import Sequence
from itertools import product
from math import inf

import numpy as np

from glasshouse.measures.estimate import Estimate, clopper_pearson, combined, mean
from glasshouse.studies.judging import POSITIVE, Region, judged, undecided
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import cells
from glasshouse.studies.scale_mia.cells import (
    CODED,
    DRAWN,
    PUBLISHED,
    RATE,
    StarvedCell,
    Table3Cell,
    Table4Cell,
)
from glasshouse.studies.scale_mia.head_claims import head_verdicts
from glasshouse.studies.scale_mia.printed import HARDLY
from glasshouse.studies.scale_mia.rival_claims import rival_verdicts
from glasshouse.verdicts.claims import Verdict

USUAL_NOISE = "1"
"""The noise multiplier at which differential privacy is usually said to protect."""


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim."""
    return [
        _large_batches(measured),
        _falls(measured),
        _neurons(measured),
        _hardly("The number of auxiliary images hardly matters (1% against 100%)", measured, 5, 0.01),
        _hardly("Knowing one class only hardly matters (1 class against 10)", measured, 7, 1),
        _small_batches(measured),
        *rival_verdicts(measured),
        _stealth(measured),
        _privacy(measured),
        _collisions(measured),
        *head_verdicts(measured),
    ]


def _averaged(
    claim: str, values: Sequence[float], what: str, unit: str = "rows", **regions: Region
) -> Verdict:
    estimate = mean(values) if len(values) > 1 else None
    return judged(claim, estimate, len(values), what, f", n = {{n}} {unit} of Table 4", **regions)


def _large_batches(measured: Measured) -> Verdict:
    """At the largest batch that every network of the paper has."""
    claim = "Large batches are recovered from a secure sum (512 images, above the blind guess)"
    largest = [str(cell) for cell in Table4Cell.matching(measured.cells) if cell.batch == 512]
    rates = [measured.measure(cell, CODED, RATE) for cell in largest]
    gains = [rate.value - (rate.chance or 0.0) for rate in rates if rate and rate.value is not None]
    return _averaged(claim, gains, f"{CODED}'s recovery rate above the blind guess's")


def _falls(measured: Measured) -> Verdict:
    slopes = []
    for by_batch in cells.table_4(measured).values():
        rates = {batch: measured.value(cell, CODED, RATE) for batch, cell in by_batch.items()}
        points = [(np.log2(batch), rate) for batch, rate in rates.items() if rate is not None]
        if len(points) >= 3:
            x, y = zip(*points)
            slopes.append(-float(np.polyfit(x, y, 1)[0]))
    claim = "The recovery rate falls as the batch grows"
    return _averaged(claim, slopes, "fall with each doubling of the batch")


def _neurons(measured: Measured) -> Verdict:
    """The bound depends on k alone; how far it explains rates is their distance from it."""
    claim = "The recovery rate is set by the number of neurons k: it follows (1 - 1/k)^(m-1) to 0.1"
    gaps = [
        abs(rate - bound)
        for cell in map(str, Table4Cell.matching(measured.cells))
        if (rate := measured.value(cell, CODED, RATE)) is not None
        and (bound := measured.value(cell, None, cells.BOUND)) is not None
    ]
    return _averaged(claim, gaps, "distance from the bound", "cells", holds=(-inf, 0.1), refuted=(0.1, inf))


def _hardly(claim: str, measured: Measured, table: int, amount: float) -> Verdict:
    """How much lower the rate is than with everything, over the batch sizes."""
    falls, lost = [], []
    for cell in StarvedCell.matching(measured.cells):
        if (cell.table, cell.amount) == (table, amount):
            pair = str(StarvedCell(5, 1.0, cell.batch)), str(cell)
            rate, psnr = (_difference(measured, pair, metric) for metric in (RATE, cells.PSNR))
            falls += [rate] if rate else []
            lost += [psnr.value] if psnr and psnr.value is not None else []
    fainter = f"; the PSNR of the recovered falls by {np.mean(lost):.1f} dB" if lost else ""
    of = f", n = {{n}} samples in {len(falls)} batch sizes{fainter}"
    regions = {"holds": (-HARDLY, HARDLY), "refuted": (HARDLY, inf)}
    return judged(claim, _mean(falls), len(falls), "fall of the rate", of, **regions)


def _mean(estimates: Sequence[Estimate]) -> Estimate | None:
    return combined(estimates, [1 / len(estimates)] * len(estimates)) if estimates else None


def _difference(measured: Measured, pair: Sequence[str], metric: str) -> Estimate | None:
    """How much higher the metric is in the first cell than in the second."""
    known = [one for cell in pair if (one := measured.estimate(cell, CODED, metric)) is not None]
    return combined(known, [1.0, -1.0]) if len(known) == 2 else None


def _small_batches(measured: Measured) -> Verdict:
    """Table 3 says so of Scale-MIA: 21.2 dB for one image, 27.9 dB for 64."""
    claim = "Small batches are rebuilt worse than large ones (2 against 64)"
    pair = [str(Table3Cell(CODED, batch)) for batch in (64, 2)]
    done = any(measured.estimate(cell, CODED, cells.RETURNED) is not None for cell in pair)
    what, gain = "PSNR of what is returned, 64 minus 2", _difference(measured, pair, cells.RETURNED)
    return judged(claim, gain, int(done), what, " dB, n = {n} samples")


def _stealth(measured: Measured) -> Verdict:
    claim = "Scale-MIA is stealthier than Robbing the Fed (for a client that vets what it receives)"
    alarms = [
        [
            alarm
            for cell, attack in product(measured.cells, attacks)
            if (alarm := measured.measure(cell, attack, cells.ALARM)) is not None
        ]
        for attacks in ((PUBLISHED, DRAWN, CODED), ("robbing-the-fed",))
    ]
    ours, theirs = ([alarm.value for alarm in group if alarm.value is not None] for group in alarms)
    if not ours or not theirs:
        return undecided(claim, min(len(ours), len(theirs)))
    low, high = clopper_pearson(round(sum(ours)), len(ours))
    their_low, _ = clopper_pearson(round(sum(theirs)), len(theirs))
    untouched = {
        (alarm.row.model, alarm.row.data): alarm.chance or 0.0 for group in alarms for alarm in group
    }
    reason = (
        f"flagged: {sum(ours):.0f} of {len(ours)} models of Scale-MIA (at least {low:.2f} of all, 95%), "
        f"{sum(theirs):.0f} of {len(theirs)} of Robbing the Fed, "
        f"{sum(untouched.values()):.0f} of {len(untouched)} of the untouched ones"
    )
    verdict = "holds" if high < their_low else "refuted" if low > 0.5 else "not shown"
    return Verdict(claim, verdict, reason)


def _privacy(measured: Measured) -> Verdict:
    claim = f"Differential privacy does not stop it (noise multiplier {USUAL_NOISE})"
    best, limits = {}, {}
    for noise, cell in cells.varied(measured, "dp").items():
        rates = [measured.estimate(cell, attack, RATE) for attack in cells.attacks(measured, [cell])]
        if known := [rate for rate in rates if rate is not None]:
            coded = measured.measure(cell, CODED, RATE)
            best[noise] = max(known, key=lambda rate: rate.value or 0.0)
            limits[noise] = max(HARDLY, (coded and coded.chance) or 0.0)
    survived = [noise for noise, rate in best.items() if (rate.low or 0.0) > limits[noise]]
    most = max(survived, key=float, default=None)
    if most is None:
        still = "it works at none that was tried"
    else:
        still = f"it works up to a multiplier of {most}" if float(most) else "it works without noise only"
    rate, limit = best.get(USUAL_NOISE), limits.get(USUAL_NOISE, HARDLY)
    what, of = "recovery rate of the best attack that knows of it", f", n = {{n}}; {still}"
    return judged(claim, rate, len(best), what, of, holds=(limit, inf), refuted=(-inf, limit))


def _collisions(measured: Measured) -> Verdict:
    """Where about half as many samples as neurons meet, so that a third of them or more collide."""
    gains, examples = [], []
    for cell in Table4Cell.matching(measured.cells):
        coded, peeled = (measured.estimate(str(cell), attack, RATE) for attack in (CODED, cells.PEELED))
        bound = measured.value(str(cell), None, cells.BOUND)
        if coded is not None and peeled is not None and bound is not None and 0.5 < bound < 0.7:
            gains.append(combined([peeled, coded], [1.0, -1.0]))
            where = f"{cell.network} on {cell.data} at {cell.batch}"
            examples.append(f"{where}: {peeled.value:.3f}, of whom {bound:.3f} are alone")
    gain = _mean(gains)
    of = f", n = {gain.n // 2} samples in {len(gains)} rows of Table 4 ({examples[0]})" if gain else ""
    what, regions = (
        "rate with collisions resolved minus that of one direction",
        {"holds": (-inf, HARDLY), "refuted": POSITIVE},
    )
    return judged("Samples that meet in a bin are lost", gain, len(gains), what, of, **regions)

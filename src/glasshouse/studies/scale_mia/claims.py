"""The paper's claims, and two assumptions it makes, against what was measured."""

from collections.abc import Sequence

import numpy as np

from glasshouse.measures.estimate import Estimate, clopper_pearson, combined, mean
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia.cells import (
    ALARM,
    BOUND,
    PEELED,
    PSNR,
    PUBLISHED,
    RATE,
    RETURNED,
    StarvedCell,
    Table3Cell,
    Table4Cell,
    VariedCell,
    attacks,
    table_4,
)
from glasshouse.verdicts.claims import Verdict

HARDLY = 0.05
"""A change of the rate of less than five points is hardly one; the paper's own go up to 4.4."""
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
        _stealth(measured),
        _privacy(measured),
        _collisions(measured),
    ]


def _large_batches(measured: Measured) -> Verdict:
    """At the largest batch that every network of the paper has."""
    claim = "Large batches are recovered from a secure sum (512 images, above the blind guess)"
    cells = [str(cell) for cell in Table4Cell.matching(measured.cells) if cell.batch == 512]
    rates = [measured.measure(cell, PUBLISHED, RATE) for cell in cells]
    gains = [rate.value - (rate.chance or 0.0) for rate in rates if rate and rate.value is not None]
    return _over_rows(claim, gains, "recovery rate above the blind guess's")


def _falls(measured: Measured) -> Verdict:
    claim = "The recovery rate falls as the batch grows"
    slopes = []
    for cells in table_4(measured).values():
        points = [
            (np.log2(batch), rate)
            for batch, cell in cells.items()
            if (rate := measured.value(cell, PUBLISHED, RATE)) is not None
        ]
        if len(points) >= 3:
            x, y = zip(*points)
            slopes.append(-float(np.polyfit(x, y, 1)[0]))
    return _over_rows(claim, slopes, "fall with each doubling of the batch")


def _neurons(measured: Measured) -> Verdict:
    """The bound depends on k alone; how far it explains rates is their distance from it."""
    claim = "The recovery rate is set by the number of neurons k: it follows (1 - 1/k)^(m-1) to 0.1"
    gaps = [
        abs(rate - bound)
        for cell in Table4Cell.matching(measured.cells)
        if (rate := measured.value(str(cell), PUBLISHED, RATE)) is not None
        and (bound := measured.value(str(cell), None, BOUND)) is not None
    ]
    if len(gaps) < 2:
        return _open(claim, len(gaps))
    gap = mean(gaps)
    reason = f"distance from the bound: {_spelt(gap)}, n = {gap.n} cells of Table 4"
    return _verdict(claim, reason, holds=(gap.high or 0.0) < 0.1, refuted=(gap.low or 0.0) > 0.1)


def _hardly(claim: str, measured: Measured, table: int, amount: float) -> Verdict:
    """How much lower the rate is than with everything, over the batch sizes."""
    falls: list[Estimate] = []
    lost = []
    for cell in StarvedCell.matching(measured.cells):
        if (cell.table, cell.amount) != (table, amount):
            continue
        pair = str(StarvedCell(5, 1.0, cell.batch)), str(cell)
        rates = [rate for name in pair if (rate := measured.estimate(name, PUBLISHED, RATE)) is not None]
        psnrs = [psnr for name in pair if (psnr := measured.value(name, PUBLISHED, PSNR)) is not None]
        falls += [combined(rates, [1.0, -1.0])] if len(rates) == 2 else []
        lost += [psnrs[0] - psnrs[1]] if len(psnrs) == 2 else []
    fall = combined(falls, [1 / len(falls)] * len(falls)) if falls else None
    if fall is None or fall.value is None or fall.low is None or fall.high is None:
        return _open(claim, len(falls))
    fainter = f"; the PSNR of the recovered falls by {np.mean(lost):.1f} dB" if lost else ""
    reason = f"fall of the rate: {_spelt(fall)}, n = {fall.n} samples in {len(falls)} batch sizes{fainter}"
    within = fall.low > -HARDLY and fall.high < HARDLY
    return _verdict(claim, reason, holds=within, refuted=fall.low > HARDLY)


def _small_batches(measured: Measured) -> Verdict:
    """Table 3 says so of Scale-MIA: 21.2 dB for one image, 27.9 dB for 64."""
    claim = "Small batches are rebuilt worse than large ones (2 against 64)"
    cells = [str(Table3Cell("scale-mia", batch)) for batch in (64, 2)]
    psnrs = [psnr for cell in cells if (psnr := measured.estimate(cell, PUBLISHED, RETURNED)) is not None]
    gain = combined(psnrs, [1.0, -1.0]) if len(psnrs) == 2 else None
    if gain is None or gain.low is None or gain.high is None:
        return _open(claim, min(len(psnrs), 1))
    reason = f"PSNR of what is returned, 64 minus 2: {_spelt(gain)} dB, n = {gain.n} samples"
    return _verdict(claim, reason, holds=gain.low > 0, refuted=gain.high < 0)


def _stealth(measured: Measured) -> Verdict:
    claim = "Scale-MIA is stealthier than Robbing the Fed (for a client that vets what it receives)"
    alarms = {
        attack: [
            alarm for cell in measured.cells if (alarm := measured.measure(cell, attack, ALARM)) is not None
        ]
        for attack in (PUBLISHED, "robbing-the-fed")
    }
    ours, theirs = (
        [alarm.value for alarm in of_attack if alarm.value is not None] for of_attack in alarms.values()
    )
    if not ours or not theirs:
        return _open(claim, min(len(ours), len(theirs)))
    low, high = clopper_pearson(round(sum(ours)), len(ours))
    their_low, _ = clopper_pearson(round(sum(theirs)), len(theirs))
    untouched = {
        (alarm.row.model, alarm.row.data): alarm.chance or 0.0
        for of_attack in alarms.values()
        for alarm in of_attack
    }
    reason = (
        f"flagged: {sum(ours):.0f} of {len(ours)} models of Scale-MIA (at least {low:.2f} of all, 95%), "
        f"{sum(theirs):.0f} of {len(theirs)} of Robbing the Fed, "
        f"{sum(untouched.values()):.0f} of {len(untouched)} of the untouched ones"
    )
    return _verdict(claim, reason, holds=high < their_low, refuted=low > 0.5)


def _privacy(measured: Measured) -> Verdict:
    claim = f"Differential privacy does not stop it (noise multiplier {USUAL_NOISE})"
    best, limits = {}, {}
    for cell in VariedCell.matching(measured.cells):
        rate = _best(measured, str(cell)) if cell.question == "dp" else None
        if rate is not None:
            published = measured.measure(str(cell), PUBLISHED, RATE)
            best[cell.value] = rate
            limits[cell.value] = max(HARDLY, (published and published.chance) or 0.0)
    if USUAL_NOISE not in best:
        return _open(claim, len(best))
    survived = [noise for noise, rate in best.items() if (rate.low or 0.0) > limits[noise]]
    most = max(survived, key=float, default=None)
    if most is None:
        still = "it works at none that was tried"
    else:
        still = f"it works up to a multiplier of {most}" if float(most) else "it works without noise only"
    rate, limit = best[USUAL_NOISE], limits[USUAL_NOISE]
    reason = f"recovery rate of the best attack that knows of it: {_spelt(rate)}, n = {rate.n}; {still}"
    return _verdict(claim, reason, holds=(rate.low or 0.0) > limit, refuted=(rate.high or 0.0) < limit)


def _best(measured: Measured, cell: str) -> Estimate | None:
    """The highest rate that any attack reaches in a cell."""
    rates = [measured.estimate(cell, attack, RATE) for attack in attacks(measured, [cell])]
    return max((rate for rate in rates if rate is not None), key=lambda rate: rate.value or 0.0, default=None)


def _collisions(measured: Measured) -> Verdict:
    """Where about half as many samples as neurons meet, so that a third of them or more collide."""
    claim = "Samples that meet in a bin are lost"
    gains, examples = [], []
    for cell in Table4Cell.matching(measured.cells):
        published, peeled = (measured.estimate(str(cell), attack, RATE) for attack in (PUBLISHED, PEELED))
        bound = measured.value(str(cell), None, BOUND)
        if published is not None and peeled is not None and bound is not None and 0.5 < bound < 0.7:
            gains.append(combined([peeled, published], [1.0, -1.0]))
            where = f"{cell.network} on {cell.data} at {cell.batch}"
            examples.append(f"{where}: {peeled.value:.3f}, of whom {bound:.3f} are alone")
    if not gains:
        return _open(claim, 0)
    gain = combined(gains, [1 / len(gains)] * len(gains))
    reason = (
        f"rate with collisions resolved minus as published: {_spelt(gain)}, n = {gain.n // 2} samples in "
        f"{len(gains)} rows of Table 4 ({examples[0]})"
    )
    refuted = (gain.low or 0.0) > 0
    return _verdict(claim, reason, holds=not refuted and (gain.high or 0.0) < HARDLY, refuted=refuted)


def _over_rows(claim: str, gains: Sequence[float], what: str) -> Verdict:
    """Whether gains, one for each row of Table 4, are above zero."""
    if len(gains) < 2:
        return _open(claim, len(gains))
    gain = mean(gains)
    reason = f"{what}: {_spelt(gain)}, n = {gain.n} rows of Table 4"
    return _verdict(claim, reason, holds=(gain.low or 0.0) > 0, refuted=(gain.high or 0.0) < 0)


def _verdict(claim: str, reason: str, *, holds: bool, refuted: bool) -> Verdict:
    return Verdict(claim, "holds" if holds else "refuted" if refuted else "not shown", reason)


def _open(claim: str, done: int) -> Verdict:
    return Verdict(claim, "open", f"{done} of the cells that it needs are done")


def _spelt(estimate: Estimate) -> str:
    return f"{estimate.value:+.3f}, 95% interval {estimate.low:+.3f} to {estimate.high:+.3f}"

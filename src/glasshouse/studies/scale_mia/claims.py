"""The paper's claims, and two assumptions it makes, against what was measured."""

from collections.abc import Sequence

import numpy as np

from glasshouse.measures.estimate import Estimate, clopper_pearson, combined, mean
from glasshouse.studies.scale_mia.cells import PEELED, PUBLISHED
from glasshouse.studies.scale_mia.measured import Measured
from glasshouse.studies.scale_mia.rows import BOUND
from glasshouse.studies.scale_mia.spelling import PSNR, RATE
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
        _hardly("The number of auxiliary images hardly matters (1% against 100%)", measured, "table-5/0.01"),
        _hardly("Knowing one class only hardly matters (1 class against 10)", measured, "table-7/1"),
        _small_batches(measured),
        _stealth(measured),
        _privacy(measured),
        _collisions(measured),
    ]


def _large_batches(measured: Measured) -> Verdict:
    """At the largest batch that every network of the paper has."""
    claim = "Large batches are recovered from a secure sum (512 images, above the blind guess)"
    gains = {}
    for network, data in measured.rows():
        cell = f"table-4/{network}/{data}/512"
        found, blind = measured.estimate(cell, PUBLISHED, RATE), measured.measure(cell, PUBLISHED, RATE)
        if found is not None and blind is not None and found.value is not None:
            gains[network, data] = found.value - (blind.chance or 0.0)
    return _judge(claim, list(gains.values()), "recovery rate above the blind guess's", "rows of Table 4")


def _falls(measured: Measured) -> Verdict:
    claim = "The recovery rate falls as the batch grows"
    slopes = []
    for network, data in measured.rows():
        points = [
            (np.log2(batch), value)
            for batch in measured.batches(network, data)
            if (value := measured.value(f"table-4/{network}/{data}/{batch}", PUBLISHED, RATE)) is not None
        ]
        if len(points) >= 3:
            x, y = zip(*points)
            slopes.append(-float(np.polyfit(x, y, 1)[0]))
    return _judge(claim, slopes, "fall with each doubling of the batch", "rows of Table 4")


def _neurons(measured: Measured) -> Verdict:
    """The bound depends on k alone; how far it explains rates is their distance from it."""
    claim = "The recovery rate is set by the number of neurons k: it follows (1 - 1/k)^(m-1) to 0.1"
    gaps = []
    for network, data in measured.rows():
        for batch in measured.batches(network, data):
            cell = f"table-4/{network}/{data}/{batch}"
            rate, bound = measured.value(cell, PUBLISHED, RATE), measured.value(cell, None, BOUND)
            if rate is not None and bound is not None:
                gaps.append(abs(rate - bound))
    if len(gaps) < 2:
        return _open(claim, len(gaps))
    found = mean(gaps)
    low, high = found.low or 0.0, found.high or 0.0
    verdict = "holds" if high < 0.1 else "refuted" if low > 0.1 else "not shown"
    reason = f"distance from the bound: {_shown(found)}, n = {found.n} cells of Table 4"
    return Verdict(claim, verdict, reason)


def _hardly(claim: str, measured: Measured, head: str) -> Verdict:
    """How much lower the rate is than with everything, over the batch sizes."""
    parts: list[Estimate] = []
    for batch in measured.under(head):
        whole = measured.estimate(f"table-5/1/{batch}", PUBLISHED, RATE)
        starved = measured.estimate(f"{head}/{batch}", PUBLISHED, RATE)
        if whole is not None and starved is not None:
            parts.append(combined([whole, starved], [1.0, -1.0]))
    if not parts:
        return _open(claim, 0)
    fall = combined(parts, [1 / len(parts)] * len(parts))
    if fall.value is None or fall.low is None or fall.high is None:
        return _open(claim, len(parts))
    within = fall.low > -HARDLY and fall.high < HARDLY
    verdict = "holds" if within else "refuted" if fall.low > HARDLY else "not shown"
    lost = [
        most - least
        for batch in measured.under(head)
        if (most := measured.value(f"table-5/1/{batch}", PUBLISHED, PSNR)) is not None
        and (least := measured.value(f"{head}/{batch}", PUBLISHED, PSNR)) is not None
    ]
    psnr = f"; the PSNR of the recovered falls by {np.mean(lost):.1f} dB" if lost else ""
    reason = f"fall of the rate: {_shown(fall)}, n = {fall.n} samples in {len(parts)} batch sizes{psnr}"
    return Verdict(claim, verdict, reason)


def _small_batches(measured: Measured) -> Verdict:
    """Table 3 says so of Scale-MIA: 21.2 dB for one image, 27.9 dB for 64."""
    claim = "Small batches are rebuilt worse than large ones (2 against 64)"
    found = [
        measured.estimate(f"table-3/scale-mia/{batch}", PUBLISHED, "psnr-of-returned") for batch in (64, 2)
    ]
    large, small = found
    if large is None or small is None:
        return _open(claim, sum(own is not None for own in found))
    gain = combined([large, small], [1.0, -1.0])
    if gain.low is None or gain.high is None:
        return _open(claim, 1)
    verdict = "holds" if gain.low > 0 else "refuted" if gain.high < 0 else "not shown"
    return Verdict(
        claim, verdict, f"PSNR of what is returned, 64 minus 2: {_shown(gain)} dB, n = {gain.n} samples"
    )


def _stealth(measured: Measured) -> Verdict:
    claim = "Scale-MIA is stealthier than Robbing the Fed (for a client that vets what it receives)"
    flagged = {
        attack: [
            found.value
            for cell in measured.cells
            if (found := measured.measure(cell, attack, "vet-alarm")) is not None and found.value is not None
        ]
        for attack in (PUBLISHED, "robbing-the-fed")
    }
    own, other = flagged.values()
    if not own or not other:
        return _open(claim, min(len(own), len(other)))
    (own_low, own_high), (other_low, _) = (clopper_pearson(round(sum(f)), len(f)) for f in (own, other))
    honest = _false_alarms(measured)
    verdict = "holds" if own_high < other_low else "refuted" if own_low > 0.5 else "not shown"
    reason = (
        f"flagged: {sum(own):.0f} of {len(own)} models of Scale-MIA (at least {own_low:.2f} of all, 95%), "
        f"{sum(other):.0f} of {len(other)} of Robbing the Fed, {honest} of the untouched ones"
    )
    return Verdict(claim, verdict, reason)


def _false_alarms(measured: Measured) -> str:
    alarms: dict[tuple[str | None, str | None], float] = {}
    for cell in measured.cells:
        for attack in (PUBLISHED, "robbing-the-fed"):
            found = measured.measure(cell, attack, "vet-alarm")
            if found is not None:
                alarms[found.row.model, found.row.data] = found.chance or 0.0
    return f"{sum(alarms.values()):.0f} of {len(alarms)}"


def _privacy(measured: Measured) -> Verdict:
    claim = f"Differential privacy does not stop it (noise multiplier {USUAL_NOISE})"
    best = {noise: found for noise in measured.under("dp") if (found := _best(measured, f"dp/{noise}"))}
    if USUAL_NOISE not in best:
        return _open(claim, len(best))
    chance = {noise: _chance(measured, f"dp/{noise}") for noise in best}
    own = best[USUAL_NOISE]
    low, high = own.low or 0.0, own.high or 0.0
    limit = max(HARDLY, chance[USUAL_NOISE])
    verdict = "holds" if low > limit else "refuted" if high < limit else "not shown"
    survived = [noise for noise, found in best.items() if (found.low or 0.0) > max(HARDLY, chance[noise])]
    most = max(survived, key=float) if survived else None
    if most is None:
        still = "it works at none that was tried"
    else:
        still = f"it works up to a multiplier of {most}" if float(most) else "it works without noise only"
    reason = f"recovery rate of the best attack that knows of it: {_shown(own)}, n = {own.n}; {still}"
    return Verdict(claim, verdict, reason)


def _best(measured: Measured, cell: str) -> Estimate | None:
    """The highest rate that any attack reaches in a cell."""
    found = [measured.estimate(cell, attack, RATE) for attack in measured.attacks(cell)]
    known = [own for own in found if own is not None]
    return max(known, key=lambda own: own.value or 0.0) if known else None


def _chance(measured: Measured, cell: str) -> float:
    found = measured.measure(cell, PUBLISHED, RATE)
    return 0.0 if found is None else found.chance or 0.0


def _collisions(measured: Measured) -> Verdict:
    """Where about half as many samples as neurons meet, so that a third of them or more collide."""
    claim = "Samples that meet in a bin are lost"
    gains, told = [], []
    for network, data in measured.rows():
        for batch in measured.batches(network, data):
            cell = f"table-4/{network}/{data}/{batch}"
            published, peeled = (measured.estimate(cell, attack, RATE) for attack in (PUBLISHED, PEELED))
            bound = measured.value(cell, None, BOUND)
            if published is not None and peeled is not None and bound is not None and 0.5 < bound < 0.7:
                gains.append(combined([peeled, published], [1.0, -1.0]))
                told.append(
                    f"{network} on {data} at {batch}: {peeled.value:.3f}, of whom {bound:.3f} are alone"
                )
    if not gains:
        return _open(claim, 0)
    gain = combined(gains, [1 / len(gains)] * len(gains))
    low, high = gain.low or 0.0, gain.high or 0.0
    verdict = "refuted" if low > 0 else "holds" if high < HARDLY else "not shown"
    reason = (
        f"rate with collisions resolved minus as published: {_shown(gain)}, n = {gain.n // 2} samples in "
        f"{len(gains)} rows of Table 4 ({told[0]})"
    )
    return Verdict(claim, verdict, reason)


def _judge(claim: str, gains: Sequence[float], what: str, unit: str) -> Verdict:
    if len(gains) < 2:
        return _open(claim, len(gains))
    found = mean(gains)
    low, high = found.low or 0.0, found.high or 0.0
    verdict = "holds" if low > 0 else "refuted" if high < 0 else "not shown"
    return Verdict(claim, verdict, f"{what}: {_shown(found)}, n = {found.n} {unit}")


def _open(claim: str, there: int) -> Verdict:
    return Verdict(claim, "open", f"{there} of the cells that it needs are done")


def _shown(found: Estimate) -> str:
    return f"{found.value:+.3f}, 95% interval {found.low:+.3f} to {found.high:+.3f}"

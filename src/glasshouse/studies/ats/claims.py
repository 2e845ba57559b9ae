"""The seven claims and two extensions of the replication, against what was measured.

Comparisons are paired over images, and intervals are over images (t). What an attack shows is its PSNR above
that of a blind guess. A defence is judged by the attacker who is worst for it, be it one who does not know it
and seeks the transformed image (as in the papers) or one who does and seeks the original. A comparison counts
where the undefended model was trained far enough, and where the search shows something without defence.
"""

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from glasshouse.measures.estimate import Estimate
from glasshouse.measures.trends import pearson
from glasshouse.studies.ats import cells
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.cells import ArmCell, gradsim, training_of
from glasshouse.studies.ats.measured import PAPERS, STRONGER, Exposure, Row, averaged, estimated, less
from glasshouse.studies.ats.printed import HYBRID, NONE, PEARSON, REPLICATED_PEARSON, TABLE_2
from glasshouse.studies.ats.victims import knows_defence
from glasshouse.studies.judging import judged
from glasshouse.studies.measured import Measured
from glasshouse.studies.showing import bracketed
from glasshouse.verdicts.claims import Verdict

REHEARSAL = "digits"
"""The data of the scale `smoke`, about which the papers claim nothing."""

CLEAR = 1.0
"""An attack that comes no further than 1 dB above the blind guess shows nothing."""

NEGLIGIBLE = 0.02
"""A loss of accuracy under two points."""

LINEAR = 0.5
"""A correlation below explains less than a quarter of the variance."""

FEWEST = 10
"""Policies that a correlation takes."""

UNDERTRAINED = f"the undefended model is less than {reading.FAR_ENOUGH} times as accurate as a blind guess"
POWERLESS = "the search does not beat the blind guess on updates without defence"
MISSING = "too few cells are done"
REHEARSED = "the digits only show that it runs"

CLAIMS = {
    1: "1. Policies that a search chose make reconstruction infeasible",
    2: "2. They defeat several variants of the attack",
    3: "3. They transfer: policies searched on CIFAR-100 protect Fashion-MNIST",
    4: f"4. They cost less than {100 * NEGLIGIBLE:g} points of accuracy",
    5: "5. They distort details and keep the meaning: shallow layers' gradients lose more likeness than deep",
    6: "6. The five best transformations are 3, 15, 26, 18 and 1",
    7: f"7. S_pri and PSNR are linearly correlated (printed: {PEARSON}, replicated: {REPLICATED_PEARSON})",
}
EXTENSIONS = {
    1: "Extension 1. Policies searched on CIFAR-100 make reconstruction of Tiny-ImageNet infeasible",
    2: "Extension 2. The five best transformations are the same on Tiny-ImageNet",
}


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim and extension."""
    return [
        _infeasible(measured, CLAIMS[1], "table-1"),
        _general(measured),
        _transferable(measured),
        _cheap(measured),
        _semantic(measured),
        _best_five(measured, CLAIMS[6], "cifar100"),
        _correlated(measured),
        _infeasible(measured, EXTENSIONS[1], "table-5"),
        _best_five(measured, EXTENSIONS[2], "tiny-imagenet-20"),
    ]


def _infeasible(measured: Measured, claim: str, group: str) -> Verdict:
    """Whether the worse attacker is, at most, hardly better than the mean image."""
    excesses, drops, named, reasons = [], [], [], []
    for _, undefended, arms in _rows(measured, group):
        if isinstance(undefended, str):
            reasons.append(undefended)
            continue
        for exposure in arms.values():
            excesses.append(exposure.excess)
            drops.append(less(undefended.excess, exposure.excess))
            named.append(_named(exposure))
    if not excesses:
        return _open(claim, reasons)
    excess, drop = (estimated(averaged(parts).values()) for parts in (excesses, drops))
    of = f" dB, n = {{n}} images, {_listed(named)}; below no policy by {bracketed(drop, '.2f')} dB"
    what, regions = "PSNR above the blind guess", {"holds": (-inf, CLEAR), "refuted": (CLEAR, inf)}
    return judged(claim, excess, len(excesses), what, of, **regions)


def _general(measured: Measured) -> Verdict:
    """The hybrid against each attack of Table 2 that works without it."""
    drops: dict[str, Estimate] = {}
    reasons, spent = [], []
    for name in (*TABLE_2[NONE], STRONGER):
        group = "table-1" if name in (PAPERS, STRONGER) else "table-2"
        for row, undefended, arms in _rows(measured, group, name):
            if row[0] != "cifar100" or HYBRID not in arms:
                continue
            if isinstance(undefended, str):
                reasons.append(undefended)
                spent.append(name)
            elif (drop := estimated(less(undefended.excess, arms[HYBRID].excess).values())) is not None:
                drops[f"{name} on {row[1]}"] = drop
    if not drops:
        return _open(CLAIMS[2], reasons)
    fall = "; ".join(f"{name} {bracketed(drop, '+.2f')}" for name, drop in drops.items())
    left_out = f"; left out, as they fail without it: {_listed(spent)}" if spent else ""
    reason = f"PSNR above the blind guess, none minus hybrid, in dB: {fall}{left_out}"
    lows, highs = ([getattr(drop, end) or 0.0 for drop in drops.values()] for end in ("low", "high"))
    if len(drops) < 2:
        return Verdict(CLAIMS[2], "open", f"{reason}; it takes at least 2 attacks")
    verdict = "holds" if min(lows) > 0 else "refuted" if min(highs) < 0 else "not shown"
    return Verdict(CLAIMS[2], verdict, reason)


def _transferable(measured: Measured) -> Verdict:
    """Table 4: the fall of the PSNR on other data."""
    drops, reasons, named = [], [], []
    for _, undefended, arms in _rows(measured, "table-4"):
        if isinstance(undefended, str):
            reasons.append(undefended)
            continue
        drops += [less(undefended.excess, exposure.excess) for exposure in arms.values()]
        named += [_named(exposure) for exposure in arms.values()]
    if not drops:
        return _open(CLAIMS[3], reasons)
    drop = estimated(averaged(drops).values())
    of = f" dB, n = {{n}} images, {_listed(named)}"
    return judged(CLAIMS[3], drop, len(drops), "fall of the PSNR above the blind guess", of)


def _cheap(measured: Measured) -> Verdict:
    """What selected policies cost on the same test images, at the end and on the way."""
    costs, slower, reasons = [], [], []
    for (data, model), arms in reading.rows_of(measured, "table-1").items():
        if data == REHEARSAL or not reading.far_enough(measured, "table-1", data, model):
            reasons.append(REHEARSED if data == REHEARSAL else UNDERTRAINED)
            continue
        for arm in reading.selected(arms):
            cell = training_of(ArmCell("table-1", data, model, arm))
            cost = measured.estimate(str(cell), None, cells.COST)
            if cost is not None:
                costs.append(cost)
                slower.append(_lag(measured, cell))
    if not costs:
        return _open(CLAIMS[4], reasons)
    cost = _together(costs)
    lag = sum(slower) / len(slower)
    of = f", {len(costs)} models; on average over the epochs {lag:+.3f}"
    regions = {"holds": (-inf, NEGLIGIBLE), "refuted": (NEGLIGIBLE, inf)}
    return judged(CLAIMS[4], cost, len(costs), "test accuracy without a policy minus with it", of, **regions)


def _together(estimates: Sequence[Estimate]) -> Estimate:
    """Their mean; of models tested on the same images, which err together, the intervals do not shrink."""
    ends = [[getattr(one, end) for one in estimates] for end in ("value", "low", "high")]
    value, low, high = (None if None in end else float(np.mean(end)) for end in ends)
    return Estimate(value, low, high, estimates[0].n)


def _lag(measured: Measured, cell: ArmCell) -> float:
    """How far accuracy without a policy lies above that with it, on average over the epochs."""
    with_policy, without = (course(measured, name) for name in (str(cell), cell.at(arm=NONE)))
    gaps = [a - b for a, b in zip(without, with_policy)]
    return sum(gaps) / len(gaps) if gaps else 0.0


def course(measured: Measured, cell: str, metric: str = cells.ACCURACY) -> list[float]:
    """A metric of a training after each epoch."""
    values: list[float] = []
    while (value := measured.value(cell, None, cells.after_epoch(metric, len(values) + 1))) is not None:
        values.append(value)
    return values


def _semantic(measured: Measured) -> Verdict:
    """At the end of the search: what shallow layers lose in likeness beyond what deep layers lose."""
    gaps, reasons = [], []
    for (data, model), undefended, arms in _rows(measured, "table-1"):
        if isinstance(undefended, str):
            reasons.append(undefended)
            continue
        for arm in arms:
            losses = [
                less(*(_alike(measured, ArmCell("table-1", data, model, one), part) for one in (NONE, arm)))
                for part in ("shallow", "deep")
            ]
            gaps.append(less(*losses))
    values = averaged(gap for gap in gaps if gap).values()
    if not values:
        return _open(CLAIMS[5], reasons)
    what = "likeness lost by the first third of the tensors beyond that of the last third"
    return judged(CLAIMS[5], estimated(values), len(gaps), what, ", n = {n} images")


def _alike(measured: Measured, cell: ArmCell, part: str) -> dict[int, float]:
    """By image, how alike the gradients of some layers are at the end of the search that knows nothing."""
    plain = [spec for spec in reading.forms(measured, str(cell), PAPERS) if not knows_defence(spec)]
    return reading.by_image(measured, str(cell), plain[0], gradsim(part)) if plain else {}


def _best_five(measured: Measured, claim: str, data: str) -> Verdict:
    """How many of the paper's five are among the five of the lowest score."""
    overlaps, reasons = [], []
    for (name, model), arms in reading.rows_of(measured, "figure-8").items():
        cell = str(ArmCell("figure-8", name, model, arms[0]))
        accuracy = measured.measure(cell, None, cells.ACCURACY)
        overlap = measured.estimate(cell, None, cells.OVERLAP)
        if name != data or overlap is None or accuracy is None:
            continue
        if (accuracy.low or 0.0) <= (accuracy.chance or 0.0):
            reasons.append("the semi-trained model is no better than a blind guess")
            continue
        overlaps.append(overlap)
    if not overlaps:
        return _open(claim, reasons)
    overlap = _together(overlaps)
    regions = {"holds": (3.5, inf), "refuted": (-inf, 2.5)}
    return judged(claim, overlap, len(overlaps), "of the five, found", ", n = {n} images", **regions)


def _correlated(measured: Measured) -> Verdict:
    """Figure 4, over policies drawn at random."""
    points = score_and_psnr(measured)
    reasons = []
    for row in dict.fromkeys((cell.data, cell.model) for cell in points):
        undefended = [found for other, found, _ in _rows(measured, "table-1") if other == row]
        reasons += [found for found in undefended if isinstance(found, str)]
        if not reading.far_enough(measured, "figure-4", *row):
            reasons.append(UNDERTRAINED)
    if reasons or len(points) < FEWEST:
        return _open(CLAIMS[7], reasons)
    r = pearson(*zip(*points.values()))
    regions = {"holds": (LINEAR, inf), "refuted": (-inf, LINEAR)}
    return judged(CLAIMS[7], r, len(points), "Pearson's r", ", n = {n} policies (Fisher's z)", **regions)


def score_and_psnr(measured: Measured) -> dict[ArmCell, tuple[float, float]]:
    """For each policy of Figure 4 its S_pri and the PSNR to the transformed image."""
    points = {}
    for cell in ArmCell.matching(measured.cells):
        plain = reading.forms(measured, str(cell)) if cell.group == "figure-4" else []
        score = measured.value(str(cell), None, cells.SCORE)
        psnr = measured.value(str(cell), plain[0], cells.TRANSFORMED) if plain else None
        if score is not None and psnr is not None:
            points[cell] = (score, psnr)
    return points


def _rows(
    measured: Measured, group: str, name: str | None = None
) -> Iterator[tuple[Row, Exposure | str, dict[str, Exposure]]]:
    """For each data set and network without a policy the attack, or why nothing follows; selected arms."""
    for (data, model), arms in reading.rows_of(measured, group).items():
        exposures = {
            arm: found
            for arm in arms
            if (found := reading.exposure(measured, str(ArmCell(group, data, model, arm)), name)) is not None
        }
        undefended = exposures.pop(NONE, None)
        chosen = {arm: exposures[arm] for arm in reading.selected(exposures)}
        if undefended is None or not chosen:
            continue
        excess = estimated(undefended.excess.values())
        if data == REHEARSAL:
            yield (data, model), REHEARSED, chosen
        elif not reading.far_enough(measured, group, data, model):
            yield (data, model), UNDERTRAINED, chosen
        elif excess is None or (excess.low or 0.0) <= 0:
            yield (data, model), f"{POWERLESS} ({bracketed(excess, '+.2f')} dB)", chosen
        else:
            yield (data, model), undefended, chosen


def _named(exposure: Exposure) -> str:
    knows = "knows" if knows_defence(exposure.attack) else "does not know"
    return f"worst by one who {knows} the policy"


def _listed(words: list[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _open(claim: str, reasons: list[str]) -> Verdict:
    return Verdict(claim, "open", _listed(reasons) or MISSING)

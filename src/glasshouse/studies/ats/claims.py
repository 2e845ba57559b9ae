"""The seven claims and two extensions of the replication, against what was measured.

Comparisons are paired over images, and intervals are over images (t). What an attack shows is its PSNR above
that of a blind guess. A defence is judged by the attacker who is worst for it, be it one who does not know it
and seeks the transformed image (as in the papers; only pixels that come from the original count) or one who
does and seeks the original. A comparison counts where the undefended model was trained far enough, and where
the search shows something without defence.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from glasshouse.measures.estimate import Estimate
from glasshouse.studies.ats import cells
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.cells import ArmCell, gradsim, training_of
from glasshouse.studies.ats.claimed import (
    CLAIMS,
    CLEAR,
    EXTENSIONS,
    NEGLIGIBLE,
    POWERLESS,
    REHEARSAL,
    REHEARSED,
    UNDERTRAINED,
    UNLEARNED,
    left_open,
    listed,
    shows,
)
from glasshouse.studies.ats.measured import STRONGER, Exposure, Row, averaged, estimated, less, together
from glasshouse.studies.ats.printed import HYBRID, NONE, PAPERS, TABLE_2
from glasshouse.studies.ats.score_claims import best_five, correlated
from glasshouse.studies.ats.victims import knows_defence
from glasshouse.studies.judging import judged
from glasshouse.studies.measured import Measured
from glasshouse.studies.showing import bracketed
from glasshouse.verdicts.claims import Verdict


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim and extension."""
    return [
        _infeasible(measured, CLAIMS[1], "table-1"),
        _general(measured),
        _transferable(measured),
        _cheap(measured),
        _semantic(measured),
        best_five(measured, CLAIMS[6], "cifar100"),
        correlated(measured),
        _infeasible(measured, EXTENSIONS[1], "table-5"),
        best_five(measured, EXTENSIONS[2], "tiny-imagenet-20"),
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
        return left_open(claim, reasons)
    excess, drop = (estimated(averaged(parts).values()) for parts in (excesses, drops))
    of = f" dB, n = {{n}} images, {listed(named)}; below no policy by {bracketed(drop, '.2f')} dB"
    what, regions = "PSNR above the blind guess", {"holds": (-inf, CLEAR), "refuted": (CLEAR, inf)}
    verdict = judged(claim, excess, len(excesses), what, of, **regions)
    lowered = drop is not None and drop.low is not None and drop.low > 0
    return verdict if lowered or verdict.verdict != "holds" else replace(verdict, verdict="not shown")


def _general(measured: Measured) -> Verdict:
    """The hybrid against each attack of Table 2 that works without it."""
    drops: dict[str, Estimate] = {}
    reasons = []
    for name in (*TABLE_2[NONE], STRONGER):
        group = "table-1" if name in (PAPERS, STRONGER) else "table-2"
        for row, undefended, arms in _rows(measured, group, name):
            if row[0] != "cifar100" or HYBRID not in arms:
                continue
            if isinstance(undefended, str):
                reasons.append(f"{name} on {row[1]}: {undefended}")
            elif (drop := estimated(less(undefended.excess, arms[HYBRID].excess).values())) is not None:
                drops[f"{name} on {row[1]}"] = drop
    if not drops:
        return left_open(CLAIMS[2], reasons)
    fall = "; ".join(f"{name} {bracketed(drop, '+.2f')}" for name, drop in drops.items())
    left_out = f"; left out: {listed(reasons)}" if reasons else ""
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
        return left_open(CLAIMS[3], reasons)
    drop = estimated(averaged(drops).values())
    of = f" dB, n = {{n}} images, {listed(named)}"
    return judged(CLAIMS[3], drop, len(drops), "fall of the PSNR above the blind guess", of)


def _cheap(measured: Measured) -> Verdict:
    """What selected policies cost on the same test images, at the end and on the way."""
    costs, slower, reasons = [], [], []
    for (data, model), arms in reading.rows_of(measured, "table-1").items():
        if data == REHEARSAL or not reading.learned_enough(measured, "table-1", data, model):
            reasons.append(REHEARSED if data == REHEARSAL else UNLEARNED)
            continue
        for arm in reading.selected(arms):
            cell = training_of(ArmCell("table-1", data, model, arm))
            cost = measured.estimate(str(cell), None, cells.COST)
            if cost is not None:
                costs.append(cost)
                slower.append(_lag(measured, cell))
    if not costs:
        return left_open(CLAIMS[4], reasons)
    cost = together(costs)
    lag = sum(slower) / len(slower)
    skipped = f"; left out: {listed(reasons)}" if reasons else ""
    of = f", {len(costs)} models; on average over the epochs {lag:+.3f}{skipped}"
    regions = {"holds": (-inf, NEGLIGIBLE), "refuted": (NEGLIGIBLE, inf)}
    return judged(CLAIMS[4], cost, len(costs), "test accuracy without a policy minus with it", of, **regions)


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
    """At the end of the search: what shallow layers lose in likeness beyond what deep layers lose.

    The search is the one that shows most without a policy.
    """
    gaps, reasons = [], []
    for (data, model), undefended, arms in _rows(measured, "table-1"):
        if isinstance(undefended, str):
            reasons.append(undefended)
            continue
        name = undefended.attack.partition("(")[0]
        for arm in arms:
            without, protected = (ArmCell("table-1", data, model, one) for one in (NONE, arm))
            losses = [
                less(_alike(measured, without, name, part), _alike(measured, protected, name, part))
                for part in ("shallow", "deep")
            ]
            gaps.append(less(*losses))
    gaps = [gap for gap in gaps if gap]
    values = averaged(gaps).values()
    if not values:
        return left_open(CLAIMS[5], reasons)
    what = "likeness lost by the first third of the tensors beyond that of the last third"
    return judged(CLAIMS[5], estimated(values), len(gaps), what, ", n = {n} images")


def _alike(measured: Measured, cell: ArmCell, name: str, part: str) -> dict[int, float]:
    """By image, how alike the gradients of some layers are at the end of the search that knows nothing."""
    plain = [spec for spec in reading.forms(measured, str(cell), name) if not knows_defence(spec)]
    return reading.by_image(measured, str(cell), plain[0], gradsim(part)) if plain else {}


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
        if data == REHEARSAL:
            yield (data, model), REHEARSED, chosen
        elif not reading.far_enough(measured, group, data, model):
            yield (data, model), UNDERTRAINED, chosen
        elif not shows(undefended):
            excess = bracketed(estimated(undefended.excess.values()), "+.2f")
            yield (data, model), f"{POWERLESS} ({excess} dB)", chosen
        else:
            yield (data, model), undefended, chosen


def _named(exposure: Exposure) -> str:
    knows = "knows" if knows_defence(exposure.attack) else "does not know"
    return f"worst by one who {knows} the policy"

"""The claims about S_pri: which transformations it prefers, and whether it foretells what attacks rebuild."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from glasshouse.measures.trends import pearson
from glasshouse.studies.ats import cells
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.cells import ArmCell
from glasshouse.studies.ats.claimed import (
    CLAIMS,
    FEWEST,
    LINEAR,
    POWERLESS,
    REHEARSAL,
    REHEARSED,
    RELIABLE,
    UNDERTRAINED,
    left_open,
    shows,
)
from glasshouse.studies.ats.measured import together
from glasshouse.studies.ats.printed import NONE
from glasshouse.studies.judging import judged
from glasshouse.studies.measured import Measured
from glasshouse.verdicts.claims import Verdict


def best_five(measured: Measured, claim: str, data: str) -> Verdict:
    """How many of the paper's five are among the five of the lowest score."""
    overlaps, reasons = [], []
    for (name, model), arms in reading.rows_of(measured, "figure-8").items():
        cell = str(ArmCell("figure-8", name, model, arms[0]))
        accuracy = measured.measure(cell, None, cells.ACCURACY)
        overlap = measured.estimate(cell, None, cells.OVERLAP)
        if name != data or overlap is None or accuracy is None:
            continue
        if not reading.accurate(accuracy):
            reasons.append(UNDERTRAINED)
            continue
        overlaps.append(overlap)
    if not overlaps:
        return left_open(claim, reasons)
    overlap = together(overlaps)
    regions = {"holds": (3.5, inf), "refuted": (-inf, 2.5)}
    return judged(claim, overlap, len(overlaps), "of the five, found", ", n = {n} images", **regions)


def correlated(measured: Measured) -> Verdict:
    """Figure 4, over policies drawn at random, where its search works and its PSNR is more than chance."""
    points = score_and_psnr(measured)
    reasons = []
    for row in dict.fromkeys((cell.data, cell.model) for cell in points):
        untouched = reading.exposure(measured, str(ArmCell("figure-4", *row, NONE)))
        if row[0] == REHEARSAL:
            reasons.append(REHEARSED)
        elif not reading.far_enough(measured, "figure-4", *row):
            reasons.append(UNDERTRAINED)
        elif untouched is None or not shows(untouched):
            reasons.append(POWERLESS)
    if reasons or len(points) < FEWEST:
        return left_open(CLAIMS[7], reasons)
    r, agreement = pearson(*zip(*points.values())), reliability(measured, list(points))
    regions = {"holds": (LINEAR, inf), "refuted": (-inf, LINEAR)}
    of = f", n = {{n}} policies (Fisher's z); reliability of the PSNR {agreement:.2f}"
    verdict = judged(CLAIMS[7], r, len(points), "Pearson's r", of, **regions)
    unclear = agreement < RELIABLE and verdict.verdict != "holds"
    return replace(verdict, verdict="open") if unclear else verdict


def reliability(measured: Measured, policies: Sequence[ArmCell]) -> float:
    """How well the mean PSNRs of policies would agree with those on as many other images.

    The correlation of the means over one half of the images with those over the other, stretched to the
    whole length by Spearman and Brown's formula 2r / (1 + r).
    """
    halves: tuple[list[float], list[float]] = ([], [])
    for cell in policies:
        (attack,) = reading.forms(measured, str(cell))
        psnr = list(reading.by_image(measured, str(cell), attack, cells.TRANSFORMED).values())
        for place, half in enumerate(halves):
            half.append(float(np.mean(psnr[place::2])))
    r = pearson(*halves).value or 0.0
    return 2 * r / (1 + r) if r > 0 else 0.0


def score_and_psnr(measured: Measured) -> dict[ArmCell, tuple[float, float]]:
    """For each policy of Figure 4 its S_pri and the PSNR to the transformed image."""
    points = {}
    for cell in ArmCell.matching(measured.cells):
        drawn = cell.group == "figure-4" and cell.arm != NONE
        plain = reading.forms(measured, str(cell)) if drawn else []
        score = measured.value(str(cell), None, cells.SCORE)
        psnr = measured.value(str(cell), plain[0], cells.TRANSFORMED) if plain else None
        if score is not None and psnr is not None:
            points[cell] = (score, psnr)
    return points

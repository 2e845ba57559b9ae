"""The claims about S_pri: which transformations it prefers, and whether it foretells what attacks rebuild."""

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from glasshouse.measures.trends import pearson
from glasshouse.studies.ats import cells
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.cells import ArmCell
from glasshouse.studies.ats.claimed import (
    BEST,
    FEWEST,
    LINEAR,
    REHEARSAL,
    REHEARSED,
    RELIABLE,
    TOO_FEW,
    UNDERTRAINED,
    UNRELIABLE,
)
from glasshouse.studies.ats.comparisons import barred
from glasshouse.studies.ats.measured import Row
from glasshouse.studies.ats.printed import BEST_FIVE, NONE
from glasshouse.studies.measured import Measured
from glasshouse.studies.showing import bracketed
from glasshouse.verdicts.claims import Part


def best_five(measured: Measured, data: str) -> Iterator[Part]:
    """How many of the paper's five are among the five of the lowest score."""
    holds, refuted = BEST
    for (name, model), arms in reading.rows_of(measured, "figure-8").items():
        cell = str(ArmCell("figure-8", name, model, arms[0]))
        accuracy = measured.measure(cell, None, cells.ACCURACY)
        if name not in (data, REHEARSAL) or accuracy is None:
            continue
        trained = "" if reading.accurate(accuracy) else UNDERTRAINED
        yield Part(
            f"{name}, {model}",
            "of the five, found (interval over images)",
            list(measured.seeds_of(cell, None, cells.OVERLAP).values()),
            [cell],
            holds=holds,
            refuted=refuted,
            barred=REHEARSED if name == REHEARSAL else trained,
            same_records=True,
            bounds=(0.0, len(BEST_FIVE)),
            form=".1f",
        )


def correlated(measured: Measured) -> Iterator[Part]:
    """Figure 4, over policies drawn at random, where its search works and its PSNR is more than chance."""
    rows: dict[Row, dict[ArmCell, tuple[float, float]]] = {}
    for cell, point in score_and_psnr(measured).items():
        rows.setdefault((cell.data, cell.model), {})[cell] = point
    for row, points in rows.items():
        place = ArmCell("figure-4", *row, NONE)
        r, agreement = pearson(*zip(*points.values())), reliability(measured, list(points))
        says_nothing = barred(measured, place, reading.exposure(measured, str(place)))
        if not says_nothing and len(points) < FEWEST:
            says_nothing = TOO_FEW
        # Noise lowers a correlation: one that is high in spite of it is.
        if not says_nothing and agreement < RELIABLE and (r.low is None or r.low <= LINEAR):
            says_nothing = f"{UNRELIABLE} (reliability {agreement:.2f}; Pearson's r {bracketed(r, '+.3f')})"
        yield Part(
            f"{row[0]}, {row[1]}",
            f"Pearson's r over policies (Fisher's z; reliability of the PSNR {agreement:.2f})",
            [r],
            [str(place), *map(str, points)],
            holds=(LINEAR, inf),
            refuted=(-inf, LINEAR),
            barred=says_nothing,
            bounds=(-1.0, 1.0),
        )


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

"""What the paper claims of its rivals in Table 3, against what was measured.

A search that took fewer steps than its authors' shows what it reached, not what it cannot reach: claims that
longer searches might undo stay open.
"""

import dataclasses
import re
from collections.abc import Sequence
from math import inf

import numpy as np

from glasshouse.measures.estimate import mean
from glasshouse.studies.judging import judged, undecided
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import cells
from glasshouse.studies.scale_mia.cells import CODED, RATE, Table3Cell
from glasshouse.studies.scale_mia.printed import HARDLY
from glasshouse.verdicts.claims import Verdict

PASSIVE = ("dlg", "idlg", "inverting-gradients", "gradinversion")
SEARCHES = (*PASSIVE, "fishing")
STEPS = {"dlg": 300, "idlg": 300, "inverting-gradients": 4800, "gradinversion": 20_000, "fishing": 4800}
"""How many steps searches took as published; Fishing ends in one of Inverting Gradients."""

CLOSED = (CODED, "robbing-the-fed")
LARGE = 16
"""From this batch size on the paper says that searches in one update fail."""


def rival_verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim about searches."""
    return [_better_than_searches(measured), _faster_than_searches(measured), _searches_stay_small(measured)]


def _better_than_searches(measured: Measured) -> Verdict:
    """Table 3 at each batch size: what Scale-MIA returns, and the best that a search does."""
    claim = "Scale-MIA rebuilds images better than any search for them"
    gains, compared = [], []
    for cell in Table3Cell.matching(measured.cells):
        ours = measured.value(str(cell), CODED, cells.RETURNED) if cell.attack == CODED else None
        rivals = _searched(measured, cells.RETURNED, SEARCHES, cell.batch)
        if ours is not None and rivals:
            gains.append(ours - max(value for _, _, value in rivals))
            compared += rivals
    of = f" dB, n = {{n}} batch sizes; {_effort(compared)}"
    estimate = mean(gains) if len(gains) > 1 else None
    verdict = judged(claim, estimate, len(gains), "PSNR above the best search's", of)
    return _open_if_shortened(verdict, ("holds", "not shown"), compared)


def _faster_than_searches(measured: Measured) -> Verdict:
    """Each search against the slower closed form at its batch size; fewer steps make it a lower bound."""
    claim = "A search takes at least a hundred times as long as a closed form"
    ratios, compared = [], []
    for search in _searched(measured, "online-seconds", SEARCHES):
        cell, _, seconds = search
        closed = [value for _, _, value in _searched(measured, "online-seconds", CLOSED, cell.batch) if value]
        if closed and seconds:
            ratios.append(float(np.log10(seconds / max(closed))))
            compared.append(search)
    of, estimate = f", n = {{n}} cells; {_effort(compared)}", mean(ratios) if len(ratios) > 1 else None
    what, regions = "powers of ten between them", {"holds": (2.0, inf), "refuted": (-inf, 2.0)}
    verdict = judged(claim, estimate, len(ratios), what, of, **regions)
    return _open_if_shortened(verdict, ("refuted", "not shown"), compared)


def _searches_stay_small(measured: Measured) -> Verdict:
    """A batch counts as recovered if its rate is surely above the oracle's, and more than hardly any."""
    claim = f"Searches in one client's update recover small batches only (fewer than {LARGE} images)"
    tried = _searched(measured, RATE, PASSIVE)
    large = [search for search in tried if search[0].batch >= LARGE]
    if len(large) in (0, len(tried)):
        return undecided(claim, len(tried))
    recovered = [cell for cell, spec, _ in tried if _above_chance(measured, cell, spec)]
    sizes = sorted({cell.batch for cell in recovered})
    reason = f"recovered in batches of {', '.join(map(str, sizes)) or 'no size'}; {_effort(tried)}"
    if any(size >= LARGE for size in sizes):
        return Verdict(claim, "refuted", reason)
    verdict = Verdict(claim, "holds" if sizes else "not shown", reason)
    return _open_if_shortened(verdict, ("holds", "not shown"), large)


Searched = tuple[Table3Cell, str, float]
"""A cell of Table 3, the attack with the options it ran with, and what was measured of it."""


def _searched(
    measured: Measured, metric: str, attacks: Sequence[str], batch: int | None = None
) -> list[Searched]:
    """What some attacks reached, at one batch size or at all."""
    return [
        (cell, spec, value)
        for cell in Table3Cell.matching(measured.cells)
        if cell.attack in attacks and batch in (None, cell.batch)
        for spec in measured.attacks(str(cell), "psnr")
        if (value := measured.value(str(cell), spec, metric)) is not None
    ]


def _above_chance(measured: Measured, cell: Table3Cell, spec: str) -> bool:
    rate = measured.measure(str(cell), spec, RATE)
    return rate is not None and (rate.low or 0.0) > max(HARDLY, rate.chance or 0.0)


def _shortened(searches: Sequence[Searched]) -> int:
    """How many searches took fewer steps than their authors'."""
    named = [(cell.attack, re.search(r"\bsteps=(\d+)", spec)) for cell, spec, _ in searches]
    return sum(steps is not None and int(steps[1]) < STEPS[attack] for attack, steps in named)


def _effort(searches: Sequence[Searched]) -> str:
    return f"{_shortened(searches)} of {len(searches)} searches took fewer steps than published"


def _open_if_shortened(verdict: Verdict, undoable: Sequence[str], searches: Sequence[Searched]) -> Verdict:
    """The verdict, but open where it is one that longer searches might undo."""
    shortened = _shortened(searches) and verdict.verdict in undoable
    return dataclasses.replace(verdict, verdict="open") if shortened else verdict

"""What one row of the tables says to a claim: differences and slopes at each seed.

A row is barred where its models were not trained to where membership could show.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from glasshouse.measures.estimate import Estimate
from glasshouse.studies.measured import Measured, apart, sloped
from glasshouse.studies.mia_bad import cells
from glasshouse.studies.mia_bad.cells import BALANCED, MODES, TableCell, batch_batch
from glasshouse.studies.mia_bad.pretrained import RANDOM
from glasshouse.verdicts.claims import Part, Region

Attack = Callable[[int], str]
"""An attack that learns from batches, for their size."""
NEGLIGIBLE = 0.005
"""A change of less than half a point is none."""
FITTED = 0.75
"""Below this train accuracy of a target too many members are not learned, and look like others."""
GAP = 2 * NEGLIGIBLE
"""A target is right about members this much more often where calling "member" what it is right about gains
half a point of balanced accuracy; below that membership does not show."""
SATURATED = 0.995
"""Above this a score has no room left to differ."""
MATCHED = 0.03
"""Train accuracies that differ by no more count as matched."""

MORE: Region = (-math.inf, NEGLIGIBLE)
"""Where a claim that something is more is false."""
DIFFERENCES: Region = (-1.0, 1.0)
"""Where differences of accuracies can lie."""
LOSS = ("loss-threshold", "auc")
CENTRAL, FEWEST, MOST = MODES[0], MODES[1], MODES[-1]
BySeed = Mapping[int, Estimate]


def metrics(row: TableCell) -> Iterator[tuple[str, str]]:
    """The paper's own metric and balanced accuracy: in words, and as findings name them."""
    yield "accuracy at the paper's mix", cells.own_metric(row.data)
    yield "balanced accuracy", BALANCED


def part_of(
    measured: Measured,
    row: TableCell,
    what: str,
    seeds: Sequence[Estimate],
    named: Sequence[str],
    *,
    mode: str = "",
    fitting: Sequence[str] = (),
) -> Part:
    """A part of a claim that something is more; barred where the row's models were not trained for it."""
    where = ", ".join(filter(None, (row.data, row.model, mode.replace("-", " "))))
    reason = barred(measured, row, fitting)
    return Part(where, what, seeds, named, refuted=MORE, barred=reason, bounds=DIFFERENCES)


def barred(measured: Measured, row: TableCell, fitting: Sequence[str] = ()) -> str:
    """Why nothing can be judged of a row; nothing where it can.

    Its central target has to fit its data, and those of the `fitting` modes too: where a federated model
    knows too few of its members, a gain that is missing says nothing of federation.
    """
    if row.model == RANDOM:
        return "an illustration: EfficientNet-B0 from random weights, where the paper's has ImageNet's"
    gap = measured.value(row.at(CENTRAL), None, "train-test-gap")
    if gap is None:
        return "the central target, by which it is seen how far training went, is not done"
    for mode in dict.fromkeys((CENTRAL, *fitting)):
        fits = measured.value(row.at(mode), None, "train-accuracy")
        if fits is not None and fits < FITTED:
            words = mode.replace("-", " ")
            return f"not trained far enough: a train accuracy of {fits:.2f} ({words}), below {FITTED}"
    if gap < GAP:
        return f"nothing to find: a train-test gap of {gap:.3f} in one place, below {GAP}"
    return ""


def gain_parts(measured: Measured, row: TableCell, mode: str, attack: Attack) -> Iterator[Part]:
    """The gain of learning from batches, in both metrics."""
    for name, metric in metrics(row):
        seeds = list(cells.gains(measured, row, mode, attack, metric).values())
        what = f"batch-wise minus sample-wise, {name}"
        named = gain_cells(measured, row, (mode,))
        yield part_of(measured, row, what, seeds, named, mode=mode, fitting=(mode,))


def gain_cells(measured: Measured, row: TableCell, modes: Sequence[str]) -> list[str]:
    """The cells that a gain rests on."""
    columns = ["sample", *map(str, cells.batch_sizes(measured, row))]
    return [row.at(mode, column) for mode in modes for column in columns]


def slope(measured: Measured, row: TableCell, attack: Attack, name: str, metric: str) -> Part:
    """The change of a central target's score with each doubling of the batch size."""
    sizes = cells.batch_sizes(measured, row)
    points = {
        math.log2(size): measured.seeds_of(row.at(CENTRAL, size), attack(size), metric) for size in sizes
    }
    seeds = sloped(points)
    rises = float(np.mean([one.value or 0.0 for one in seeds])) >= 0 if seeds else True
    values = [one.value or 0.0 for by_seed in points.values() for one in by_seed.values()]
    named = gain_cells(measured, row, (CENTRAL,))
    part = part_of(measured, row, f"{name}, change with each doubling", seeds, named, mode=CENTRAL)
    full = f"no room to differ: above {SATURATED} at all sizes" if min(values, default=0) > SATURATED else ""
    return dataclasses.replace(
        part,
        holds=(-NEGLIGIBLE, NEGLIGIBLE),
        refuted=(NEGLIGIBLE, math.inf) if rises else (-math.inf, -NEGLIGIBLE),
        barred=part.barred or full,
    )


def leak(measured: Measured, row: TableCell, central: str, mode: str) -> Part:
    """The AUC of the loss in a central target minus that in a federated one.

    Of a central one that was stopped, those seeds count in which it fits as well.
    """
    federated = row.at(mode)
    leaks, fits = (
        [measured.seeds_of(cell, *what) for cell in (central, federated)]
        for what in (LOSS, (None, "train-accuracy"))
    )
    stopped = central == row.matched(mode)
    if stopped:
        kept = [seed for seed in leaks[0] if _match(fits, seed)]
        leaks = [{seed: one[seed] for seed in kept if seed in one} for one in leaks]
    what = f"AUC of the loss, {'stopped central' if stopped else 'central'} minus federated"
    part = part_of(measured, row, what, apart(*leaks), (central, federated), mode=mode)
    apart_by = f"no central model fits as well: train accuracies differ by more than {MATCHED}"
    unmatched = stopped and all(fits) and not leaks[0]
    return dataclasses.replace(part, barred=part.barred or (apart_by if unmatched else ""))


def _match(fits: Sequence[BySeed], seed: int) -> bool:
    first, second = (one[seed].value if seed in one else None for one in fits)
    return first is not None and second is not None and abs(first - second) <= MATCHED


def over_null(measured: Measured, row: TableCell, mode: str) -> Part:
    """The AUC on batches above the null curve, at the smallest batch size: there is most room."""
    size = min(cells.batch_sizes(measured, row), default=cells.USUAL)
    cell = row.at(mode, size)
    wise = measured.seeds_of(cell, batch_batch(size), "auc")
    null = measured.seeds_of(cell, cells.NULL_CURVE, "null-auc")
    values = [one.value or 0.0 for by_seed in (wise, null) for one in by_seed.values()]
    full = f"no room to differ: both above {SATURATED}" if min(values, default=0) > SATURATED else ""
    where = f"AUC on batches of {size} minus the null curve"
    part = part_of(measured, row, where, apart(wise, null), (cell,), mode=mode)
    return dataclasses.replace(part, barred=part.barred or full)

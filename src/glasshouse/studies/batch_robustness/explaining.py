"""Whether batch size, learning rate and momentum act through one number: how far training has gone.

SGD with momentum m moves, to first order, like gradient descent for the time lr / (1 - m) a step. Models of
one row (a data set and a network) differ in this training time, in their batch size and in their momentum,
so what belongs to each can be told apart by least squares: a cubic in the logarithm of the time, which is
free to rise and fall, and beside it a slope over the doublings of the batch size and a step for momentum 0.9.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from glasshouse.studies.batch_robustness.measured import Line, Measured, Quantity
from glasshouse.studies.batch_robustness.settings import BENCHMARK, BY_NAME, TIME
from glasshouse.verdicts.claims import Unit

DEGREE = 3
FEWEST = 10
"""Models below which a row says nothing: the fits have up to six coefficients."""
HEAVY = 0.9


@dataclass(frozen=True)
class Points:
    """The models of one row and seed, each array of shape (models,); time and batch in doublings."""

    time: np.ndarray
    batch: np.ndarray
    heavy: np.ndarray
    y: np.ndarray

    def of_time(self) -> float:
        """The share of the variance of y that a cubic in the time explains."""
        return _share(_powers(self.time), self.y)

    def of_batch(self) -> float:
        """The share that a cubic in the batch size explains."""
        return _share(_powers(self.batch), self.y)

    def gain_of_time(self) -> float:
        """How much more of y the time explains than the batch size."""
        return self.of_time() - self.of_batch()

    def by_batch(self) -> float:
        """The change with each doubling of the batch, at equal time and momentum."""
        return self._beside_time()[0]

    def by_momentum(self) -> float | None:
        """The change by momentum 0.9, at equal time and batch; none where all have it or none has."""
        return self._beside_time()[1] if np.ptp(self.heavy) else None

    def _beside_time(self) -> tuple[float, float]:
        columns = np.column_stack([_powers(self.time), self.batch, self.heavy])
        coefficients = np.linalg.lstsq(columns, self.y, rcond=None)[0]
        return float(coefficients[-2]), float(coefficients[-1])


def explained(
    measured: Measured, quantity: Quantity, says: Callable[[Points], float | None]
) -> dict[Unit, float]:
    """`says` of each row and seed with enough models of different times and batches.

    The benchmark is left out: its momentum always comes with a falling rate, and would be taken for it.
    """
    made = {}
    for data, model in measured.rows("grid"):
        lines = [
            line
            for line in measured.lines("grid")
            if (line.data, line.model) == (data, model) and line.setting != BENCHMARK.name
        ]
        for seed in measured.seeds:
            points = _gathered(measured, lines, quantity, seed)
            found = says(points) if points is not None else None
            if found is not None:
                made[data, model, seed] = found
    return made


def _gathered(measured: Measured, lines: Sequence[Line], quantity: Quantity, seed: int) -> Points | None:
    rows = set()  # LR and LR/BS are the same where the batch is 64
    for line in lines:
        heavy = BY_NAME[line.setting].momentum == HEAVY
        for batch in measured.batches(line):
            time = measured.by_seed(f"{line.head}/{batch}", None, TIME).get(seed)
            value = measured.at(line, batch, quantity).get(seed)
            if time is not None and value is not None:
                rows.add((round(math.log2(time), 9), math.log2(batch), float(heavy), value))
    if len(rows) < FEWEST:
        return None
    table = np.array(sorted(rows))
    if any(np.ptp(table[:, column]) == 0 for column in (0, 1, 3)):
        return None
    return Points(*table.T)


def _powers(x: np.ndarray) -> np.ndarray:
    scaled = (x - x.mean()) / max(np.ptp(x), 1e-12)
    return np.vander(scaled, DEGREE + 1)


def _share(columns: np.ndarray, y: np.ndarray) -> float:
    fitted = columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    return float(1 - ((y - fitted) ** 2).sum() / ((y - y.mean()) ** 2).sum())

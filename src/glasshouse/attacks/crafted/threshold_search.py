"""Finding a threshold that one sample passes, when all there is to ask is how many do."""

import numpy as np


class ThresholdSearch:
    """A search for a value that just one of the samples exceeds, by the quantiles of auxiliary values."""

    def __init__(self, values: np.ndarray, samples: float) -> None:
        self._values, self._samples = values, samples
        self._low, self._high, self._last = -np.inf, np.inf, np.nan
        self._reach = max(float(np.ptp(values)), 1e-6)

    def next(self) -> float:
        """The next threshold to try."""
        self._last = self._first() if np.isnan(self._last) else self._between()
        return self._last

    def narrow(self, *, too_low: bool) -> None:
        """Learn that the last threshold let more than one sample through, or none."""
        if too_low:
            self._low = self._last
        else:
            self._high = self._last

    def _first(self) -> float:
        return float(np.quantile(self._values, max(0.0, 1 - 1 / self._samples)))

    def _between(self) -> float:
        inside = self._values[(self._values > self._low) & (self._values < self._high)]
        if len(inside):
            return float(np.median(inside))
        if np.isfinite(self._low) and np.isfinite(self._high):
            return (self._low + self._high) / 2
        self._reach *= 2
        return self._low + self._reach / 2 if np.isfinite(self._low) else self._high - self._reach / 2

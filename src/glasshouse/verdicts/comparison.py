"""The federated model beside the central one, and runs beside each other: which differences are shown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from glasshouse.exhibits import Robustness
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import CENTRAL, CURVATURE

SPENT = 0.05  # an attack that leaves both models less than this leaves nothing to compare


@dataclass(frozen=True)
class Pair:
    """One number of the central model and of the undefended federated one, and how they differ.

    `eps` is how far the attack may move an image, where that is known. `difference`, federated less central,
    is there where both were measured on the same images.
    """

    metric: str
    attack: str | None
    eps: float | None
    central: Measure | None
    federated: Measure | None
    difference: Measure | None = None

    @property
    def spent(self) -> bool:
        """Whether an attack leaves neither model enough to be compared."""
        return all(m is not None and m.known < SPENT for m in (self.central, self.federated))

    @property
    def sign(self) -> int | None:
        """1 where the federated model has more, -1 where it has less, 0 where no difference is shown."""
        if self.difference:
            low, high = self.difference.low, self.difference.high
        elif self.federated and self.central:
            low = _less(self.federated.low, self.central.high)
            high = _less(self.federated.high, self.central.low)
        else:
            return None
        if low is None or high is None:
            return None
        return 1 if low > 0 else -1 if high < 0 else 0


@dataclass(frozen=True)
class Comparison:
    """What evasion attacks and curvature say of both models; `measures` has them under each defence too.

    `points` are the curves of the undefended federated model.
    """

    pairs: tuple[Pair, ...]
    measures: tuple[Measure, ...]
    points: tuple[Robustness, ...] = ()

    @property
    def of_federation(self) -> bool:
        """Whether the model was trained in a federation that was seen; a finished model was not."""
        return any(m.row.strategy for m in self.measures)

    @property
    def decisive(self) -> Pair | None:
        """The attack that leaves the federated model least, within the largest eps that leaves enough."""
        attacked = [pair for pair in self.pairs if pair.metric == "robust-accuracy"]
        left = [(pair.federated.known, pair) for pair in reversed(attacked) if pair.federated]
        if not left:
            return None
        _, hardest = min(left, key=lambda one: one[0])
        return next((pair for pair in (hardest, *self._closer(hardest)) if not pair.spent), hardest)

    @property
    def answer(self) -> Literal["yes", "no", "not shown", "open"]:
        """Whether federation costs robustness here; open where nothing can be compared."""
        pair = self.decisive
        if pair is None or not pair.difference or pair.sign is None or pair.spent:
            return "open"
        if pair.sign == 0:
            return "not shown"
        return "yes" if pair.sign < 0 else "no"

    @property
    def worse_within(self) -> list[float]:
        """Each eps within which the federated model is shown to keep less, where the answer is not shown."""
        pair = self.decisive
        if pair is None or self.answer != "not shown":
            return []
        return sorted(near.eps for near in self._closer(pair) if near.sign == -1 and near.eps is not None)

    def pair(self, metric: str) -> Pair | None:
        """The first pair of a metric."""
        return next((pair for pair in self.pairs if pair.metric == metric), None)

    def _closer(self, pair: Pair) -> list[Pair]:
        """The same attack within smaller limits, the largest first."""
        points = [point for point in self.points if point.attack == pair.attack and point.eps > 0]
        points.sort(key=lambda point: -point.eps)
        return [nearer for point in points if (nearer := _within(pair, point))]


def comparison(measures: Sequence[Measure], points: Sequence[Robustness]) -> Comparison | None:
    """The undefended federated model beside the central one; None where no such number was measured."""
    about = [m for m in measures if m.row.family in ("evasion", CURVATURE) and m.value is not None]
    bare = [m for m in about if (m.row.defence or "none") == "none"]
    if not bare:
        return None
    attacks = list(dict.fromkeys(m.row.attack or "" for m in bare if m.row.metric == "robust-accuracy"))
    pairs = [_pair("clean-accuracy", attacks[0], None, bare)] if attacks else []
    for attack in attacks:
        limit = max((point.eps for point in points if point.attack == attack), default=None)
        pairs.append(_pair("robust-accuracy", attack, limit, bare))
    if any(m.row.metric == "top-eigenvalue" for m in bare):
        pairs.append(_pair("top-eigenvalue", None, None, bare))
    curves = [point for point in points if point.defence == "none" and point.strategy != CENTRAL]
    return Comparison(tuple(pairs), tuple(about), tuple(curves))


def find(measures: Iterable[Measure], metric: str, attack: str | None) -> Measure | None:
    """The first measure of a metric and attack."""
    return next((m for m in measures if (m.row.metric, m.row.attack) == (metric, attack)), None)


def learned_less(measures: Iterable[Measure]) -> bool:
    """Whether the federation learned clearly less than one party with all the data would."""
    tests = [m for m in measures if m.row.metric == "test-accuracy" and m.row.defence == "none"]
    central = [m.low for m in tests if m.row.strategy == CENTRAL and m.low is not None]
    federated = [m.high for m in tests if m.row.strategy != CENTRAL and m.high is not None]
    return any(high < low for high in federated for low in central)


def any_apart(measures: Iterable[Measure]) -> bool | None:
    """Whether any two intervals are disjoint; None where there are no two of them."""
    ends = [(m.low, m.high) for m in measures if m.low is not None and m.high is not None]
    if len(ends) < 2:
        return None
    return any(a[1] < b[0] or b[1] < a[0] for a, b in combinations(ends, 2))


def _pair(metric: str, attack: str | None, eps: float | None, bare: Sequence[Measure]) -> Pair:
    central = find((m for m in bare if m.row.strategy == CENTRAL), metric, attack)
    others = [m for m in bare if m.row.strategy != CENTRAL]
    federated, difference = (find(others, name, attack) for name in (metric, f"{metric}-over-central"))
    return Pair(metric, attack, eps, central, federated, difference)


def _within(pair: Pair, point: Robustness) -> Pair | None:
    """A pair as it is at one point of its attack's curve; None where no difference was measured there."""
    central, federated, apart = pair.central, pair.federated, pair.difference
    if not central or not federated or not apart or point.value is None or point.difference is None:
        return None
    low, high = point.difference_low, point.difference_high
    return replace(
        pair,
        eps=point.eps,
        central=replace(central, value=point.value - point.difference, low=None, high=None),
        federated=replace(federated, value=point.value, low=point.low, high=point.high),
        difference=replace(apart, value=point.difference, low=low, high=high),
    )


def _less(end: float | None, other: float | None) -> float | None:
    return None if end is None or other is None else end - other

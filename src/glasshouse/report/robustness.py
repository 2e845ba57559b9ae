"""Whether training in many hands costs robustness: the federated model beside the central one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from glasshouse.exhibits import Robustness
from glasshouse.report.measure import Measure
from glasshouse.report.table import Cell, Column, Table, interval_cell, number_cell, text_cell
from glasshouse.report.words import defence_words
from glasshouse.spelling import DASH, MINUS, listed, number, of_hundred
from glasshouse.verdicts.metrics import CENTRAL, CURVATURE, metric_words

SPENT = 0.05  # an attack that leaves both models less than this leaves nothing to compare


@dataclass(frozen=True)
class Pair:
    """One number of the central model and of the undefended federated one, and how they differ.

    `difference`, federated less central, is there where both were measured on the same images.
    """

    label: str
    metric: str
    attack: str | None
    central: Measure | None
    federated: Measure | None
    difference: Measure | None = None

    @property
    def spent(self) -> bool:
        """Whether an attack leaves neither model enough to be compared."""
        return all(m is not None and _value(m) < SPENT for m in (self.central, self.federated))

    @property
    def verdict(self) -> str:
        """Which model has more, as far as the intervals allow."""
        less, more = ("flatter", "sharper") if self.metric == "top-eigenvalue" else ("lower", "higher")
        sign = self._sign()
        return "" if sign is None else ("no difference shown", f"federated {more}", f"federated {less}")[sign]

    def _sign(self) -> int | None:
        """1 where the federated model has more, -1 where it has less, 0 where no difference is shown."""
        if self.difference:
            low, high = self.difference.low, self.difference.high
        elif self.federated and self.central:
            low, high = (_less(*ends) for ends in _opposite_ends(self.federated, self.central))
        else:
            return None
        if low is None or high is None:
            return None
        return 1 if low > 0 else -1 if high < 0 else 0


@dataclass(frozen=True)
class Comparison:
    """What evasion attacks and curvature say of both models; `measures` has them under each defence too.

    `remarks` are signs that a model hides its gradients rather than being robust, `points` the curves of the
    undefended federated model.
    """

    pairs: tuple[Pair, ...]
    measures: tuple[Measure, ...]
    remarks: tuple[str, ...]
    points: tuple[Robustness, ...] = ()

    @property
    def decisive(self) -> Pair | None:
        """The attack that leaves the federated model least, within the largest eps that leaves enough."""
        attacked = [pair for pair in self.pairs if pair.metric == "robust-accuracy" and pair.federated]
        hardest = min(reversed(attacked), key=lambda pair: _value(pair.federated), default=None)
        if hardest is None:
            return None
        return next((pair for pair in (hardest, *self._closer(hardest)) if not pair.spent), hardest)

    @property
    def answer(self) -> Literal["yes", "no", "not shown", "open"]:
        """Whether federation costs robustness here; open where nothing can be compared."""
        pair = self.decisive
        if pair is None or not pair.difference or pair.verdict == "" or pair.spent:
            return "open"
        if pair.verdict == "no difference shown":
            return "not shown"
        return "yes" if pair.verdict == "federated lower" else "no"

    @property
    def sentence(self) -> str:
        """What stands behind the answer, in words."""
        said = (self._cost(), self._elsewhere(), self._plain_accuracy(), self._sharpness())
        return " ".join(filter(None, said))

    def _closer(self, pair: Pair) -> list[Pair]:
        """The same attack within smaller limits, the largest first."""
        mine = [point for point in self.points if point.attack == pair.attack and point.eps > 0]
        mine.sort(key=lambda point: -point.eps)
        return [made for point in mine if (made := _within(pair, point))]

    def _cost(self) -> str:
        pair = self.decisive
        if pair is None:
            return ""
        left = of_hundred(_value(pair.federated))
        said = f"Under attack ({pair.label}) the federated model gets {left} test images right"
        if not pair.central or not pair.difference:
            return f"{said}; there is no central model to compare it with."
        said = f"{said}, the central one {of_hundred(_value(pair.central)).removesuffix(' of 100')}"
        if self.answer == "open":
            return f"{said}: too few to compare, a smaller eps would tell more."
        if self.answer == "not shown":
            return f"{said}; the difference of {_points(pair.difference)} may be luck."
        return f"{said}: a difference of {_points(pair.difference)}."

    def _worse_within(self) -> list[str]:
        """The limits within which the federated model is shown to keep less, where the answer is not yes."""
        pair = self.decisive
        if pair is None or self.answer != "not shown":
            return []
        worse = [near for near in self._closer(pair) if near.verdict == "federated lower"]
        return [near.label.rpartition(" ")[2] for near in reversed(worse)]

    def _elsewhere(self) -> str:
        worse = self._worse_within()
        if not worse:
            return ""
        return f"Within eps {listed(worse)} it keeps less, as far as one interval of several can show."

    def _plain_accuracy(self) -> str:
        """Whether the model is less accurate to begin with, which is no matter of robustness."""
        clean = next((pair for pair in self.pairs if pair.metric == "clean-accuracy"), None)
        if clean is None or clean.difference is None or not (self.answer == "yes" or self._worse_within()):
            return ""
        if clean.verdict == "federated lower":
            points = _points(clean.difference)
            return f"Part of that is plain accuracy: the difference without an attack is {points}."
        return "Without an attack it is not shown to be worse: plain accuracy need not be the reason."

    def _sharpness(self) -> str:
        pair = next((pair for pair in self.pairs if pair.metric == "top-eigenvalue"), None)
        if pair is None or not pair.federated or not pair.central or pair.verdict == "":
            return ""
        values = f"top eigenvalue {number(_value(pair.federated))}, centrally {number(_value(pair.central))}"
        if pair.verdict == "no difference shown":
            return f"That its loss is sharper or flatter is not shown ({values})."
        return f"Its loss is {pair.verdict.partition(' ')[2]} ({values})."


def comparison(measures: Sequence[Measure], points: Sequence[Robustness]) -> Comparison | None:
    """The undefended federated model beside the central one; None where no such number was measured."""
    about = [m for m in measures if m.row.family in ("evasion", CURVATURE) and m.value is not None]
    bare = [m for m in about if (m.row.defence or "none") == "none"]
    if not bare:
        return None
    attacks = list(dict.fromkeys(m.row.attack or "" for m in bare if m.row.metric == "robust-accuracy"))
    names = short_names(attacks)
    pairs = [_pair("without an attack", "clean-accuracy", attacks[0], bare)] if attacks else []
    for attack in attacks:
        limit = max((point.eps for point in points if point.attack == attack), default=None)
        label = names[attack] if limit is None else f"{names[attack]}, eps {limit:g}"
        pairs.append(_pair(label, "robust-accuracy", attack, bare))
    if any(m.row.metric == "top-eigenvalue" for m in bare):
        pairs.append(_pair(metric_words("top-eigenvalue").label, "top-eigenvalue", None, bare))
    mine = [point for point in points if point.defence == "none" and point.strategy != CENTRAL]
    return Comparison(tuple(pairs), tuple(about), tuple(_remarks(about, names)), tuple(mine))


def short_names(attacks: Sequence[str]) -> dict[str, str]:
    """Each attack without its options, where that still tells them apart."""
    bases = [attack.partition("(")[0] for attack in attacks]
    return {full: base if bases.count(base) == 1 else full for full, base in zip(attacks, bases)}


def comparison_table(made: Comparison) -> Table:
    """Central beside federated with intervals, their difference and who is ahead."""
    both = any(pair.central and pair.federated for pair in made.pairs)
    heads = ("trained centrally", "federated", "difference") if both else ("federated",)
    columns = [Column("attack", ("attack",)), *(_number_column(head) for head in heads)]
    columns += [Column("verdict", ("verdict",))] if both else []
    rows = []
    for pair in made.pairs:
        numbers = (pair.central, pair.federated, pair.difference) if both else (pair.federated,)
        cells = [text_cell(pair.label), *map(spanned_cell, numbers)]
        rows.append((*cells, text_cell(pair.verdict)) if both else tuple(cells))
    caption = "Share of the test images classified right, and how sharp the loss is"
    return Table("robustness-table", caption, tuple(columns), tuple(rows))


def defences_table(made: Comparison) -> Table | None:
    """The same numbers under each defence, a row for each model; None where no defence was tried."""
    models = dict.fromkeys(_model(m) for m in made.measures)
    if sum(not central for central, _ in models) < 2:
        return None
    rows = []
    for central, defence in models:
        mine = [m for m in made.measures if _model(m) == (central, defence)]
        found = [_find(mine, pair.metric, pair.attack) for pair in made.pairs]
        name = "trained centrally" if central else defence_words(defence)
        rows.append((text_cell(name), *map(spanned_cell, found)))
    columns = (Column("model", ("model",)), *(_number_column(pair.label) for pair in made.pairs))
    return Table("robustness-defences", "The same under each defence", columns, tuple(rows), folded=True)


def spanned_cell(measure: Measure | None) -> Cell:
    """A value with its interval, a dash where there is none."""
    if measure is None:
        return Cell(DASH, "", ("", "", ""))
    shown, ends = number_cell(measure.value), interval_cell(measure.low, measure.high)
    text = shown.text if measure.low is None else f"{shown.text} ({ends.text})"
    return Cell(text, shown.sort, (*shown.csv, *ends.csv))


def _pair(label: str, metric: str, attack: str | None, bare: Sequence[Measure]) -> Pair:
    central = _find([m for m in bare if m.row.strategy == CENTRAL], metric, attack)
    mine = [m for m in bare if m.row.strategy != CENTRAL]
    found, difference = (_find(mine, name, attack) for name in (metric, f"{metric}-over-central"))
    return Pair(label, metric, attack, central, found, difference)


def _within(pair: Pair, point: Robustness) -> Pair | None:
    """A pair as it is at one point of its attack's curve; None where no difference was measured there."""
    central, federated, apart = pair.central, pair.federated, pair.difference
    if not central or not federated or not apart or point.value is None or point.difference is None:
        return None
    low, high = point.difference_low, point.difference_high
    return replace(
        pair,
        label=f"{pair.label.partition(', eps')[0]}, eps {point.eps:g}",
        central=replace(central, value=point.value - point.difference, low=None, high=None),
        federated=replace(federated, value=point.value, low=point.low, high=point.high),
        difference=replace(apart, value=point.difference, low=low, high=high),
    )


def _find(measures: Sequence[Measure], metric: str, attack: str | None) -> Measure | None:
    return next((m for m in measures if (m.row.metric, m.row.attack) == (metric, attack)), None)


def _points(difference: Measure) -> str:
    value, low, high = (
        f"{100 * (number or 0.0):.1f}".replace("-", MINUS)
        for number in (difference.value, difference.low, difference.high)
    )
    return f"{value} points (95% interval {low} to {high})"


def _remarks(measures: Sequence[Measure], names: dict[str, str]) -> list[str]:
    """What was noted about robust accuracy alone: what an attack was given stands in its other rows too."""
    made = []
    for m in measures:
        if m.row.metric != "robust-accuracy":
            continue
        beside = [
            other.row.assumes
            for other in measures
            if other is not m and (other.row.attack, _model(other)) == (m.row.attack, _model(m))
        ]
        given = beside[0] if beside else m.row.assumes
        central, defence = _model(m)
        whose = "the central model" if central else "the federated model"
        under = "" if defence == "none" else f" under {defence_words(defence)}"
        attack = names.get(m.row.attack or "", m.row.attack or "")
        made += [f"{attack} on {whose}{under}: {note}" for note in m.row.assumes if note not in given]
    return made


def _model(measure: Measure) -> tuple[bool, str]:
    return measure.row.strategy == CENTRAL, measure.row.defence or "none"


def _opposite_ends(one: Measure, other: Measure) -> tuple[tuple[float | None, float | None], ...]:
    return (one.low, other.high), (one.high, other.low)


def _less(end: float | None, other: float | None) -> float | None:
    return None if end is None or other is None else end - other


def _value(measure: Measure | None) -> float:
    assert measure is not None
    assert measure.value is not None
    return measure.value


def _number_column(label: str) -> Column:
    return Column(label, (label, f"{label} low", f"{label} high"), numeric=True)

"""Whether training in many hands costs robustness, in words."""

from collections.abc import Iterable

from glasshouse.report.words.names import defence_words, short_names
from glasshouse.spelling import MINUS, listed, number, of_hundred
from glasshouse.verdicts.comparison import Comparison, Pair
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import CENTRAL, metric_words

_KINDS = {CENTRAL: "central ", None: ""}


def pair_labels(comparison: Comparison, pairs: Iterable[Pair] | None = None) -> list[str]:
    """What each of the pairs, or all of them, is about."""
    names = _attack_names(comparison)
    return [_label(pair, names) for pair in (comparison.pairs if pairs is None else pairs)]


def pair_verdict(pair: Pair) -> str:
    """Which model has more, as far as the intervals allow."""
    if pair.sign is None:
        return ""
    less, more = ("flatter", "sharper") if pair.metric == "top-eigenvalue" else ("lower", "higher")
    return ("no difference shown", f"federated {more}", f"federated {less}")[pair.sign]


def robustness_sentence(comparison: Comparison) -> str:
    """What stands behind the answer."""
    parts = (_cost(comparison), _elsewhere(comparison), _plain_accuracy(comparison), _sharpness(comparison))
    return " ".join(filter(None, parts))


def gradient_remarks(comparison: Comparison) -> list[str]:
    """What is noted about robust accuracy: signs of hidden gradients, and where an attack ran otherwise."""
    names = _attack_names(comparison)
    remarks = []
    for m in comparison.measures:
        if m.row.metric == "robust-accuracy" and m.row.note:
            whose = f"the {_KINDS.get(m.row.strategy, 'federated ')}model"
            under = "" if (m.row.defence or "none") == "none" else f" under {defence_words(m.row.defence)}"
            attack = m.row.attack or ""
            remarks.append(f"{names.get(attack, attack)} on {whose}{under}: {m.row.note}")
    return remarks


def _attack_names(comparison: Comparison) -> dict[str, str]:
    return short_names([pair.attack or "" for pair in comparison.pairs if pair.metric == "robust-accuracy"])


def _label(pair: Pair, names: dict[str, str]) -> str:
    if pair.metric == "clean-accuracy":
        return "without an attack"
    if pair.metric == "top-eigenvalue":
        return metric_words(pair.metric).label
    name = names[pair.attack or ""]
    return name if pair.eps is None else f"{name}, eps {pair.eps:g}"


def _cost(comparison: Comparison) -> str:
    pair = comparison.decisive
    if pair is None or pair.federated is None:
        return ""
    (label,) = pair_labels(comparison, [pair])
    left = of_hundred(pair.federated.known)
    if not comparison.of_federation:
        return f"Under attack ({label}) the model gets {left} test images right."
    text = f"Under attack ({label}) the federated model gets {left} test images right"
    if not pair.central or not pair.difference:
        return f"{text}; there is no central model to compare it with."
    text = f"{text}, the central one {of_hundred(pair.central.known).removesuffix(' of 100')}"
    if comparison.answer == "open":
        return f"{text}: too few to compare, a smaller eps would tell more."
    if comparison.answer == "not shown":
        return f"{text}; the difference of {_points(pair.difference)} may be luck."
    return f"{text}: a difference of {_points(pair.difference)}."


def _elsewhere(comparison: Comparison) -> str:
    limits = [f"{eps:g}" for eps in comparison.worse_within]
    if not limits:
        return ""
    return f"Within eps {listed(limits)} it keeps less, as far as one interval of several can show."


def _plain_accuracy(comparison: Comparison) -> str:
    """Whether the model is less accurate to begin with, which is no matter of robustness."""
    clean = comparison.pair("clean-accuracy")
    worse = comparison.answer == "yes" or bool(comparison.worse_within)
    if clean is None or clean.difference is None or not worse:
        return ""
    if clean.sign == -1:
        points = _points(clean.difference)
        return f"Part of that is plain accuracy: the difference without an attack is {points}."
    return "Without an attack it is not shown to be worse: plain accuracy need not be the reason."


def _sharpness(comparison: Comparison) -> str:
    pair = comparison.pair("top-eigenvalue")
    if pair is None or not pair.federated or not pair.central or pair.sign is None:
        return ""
    values = f"top eigenvalue {number(pair.federated.known)}, centrally {number(pair.central.known)}"
    if pair.sign == 0:
        return f"That its loss is sharper or flatter is not shown ({values})."
    return f"Its loss is {'sharper' if pair.sign > 0 else 'flatter'} ({values})."


def _points(difference: Measure) -> str:
    value, low, high = (
        f"{100 * (number or 0.0):.1f}".replace("-", MINUS)
        for number in (difference.value, difference.low, difference.high)
    )
    return f"{value} points (95% interval {low} to {high})"

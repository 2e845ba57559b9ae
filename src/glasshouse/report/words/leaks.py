"""What a defence buys and what it costs, and who is at risk when, in words."""

from glasshouse.errors import one_line
from glasshouse.exhibits import Risk
from glasshouse.report.words.names import defence_words
from glasshouse.spelling import number
from glasshouse.verdicts.exposure import Exposure
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.tradeoff import Tradeoff, Worth, worth

LONGEST_NAME = 40
"""Characters of a client's name in a sentence."""

_WITHOUT = {
    "nothing compared": "",
    "not judged": "Without an interval for the undefended model, what a defence lowers cannot be judged.",
    "nothing to lower": (
        "This attack finds nothing without a defence, so there is nothing here for a defence to lower."
    ),
    "no effect shown": "No defence tried lowers it by more than the intervals allow for.",
    "makes it worse": "Every defence tried makes it worse.",
}
_WITH = {
    "stops": "Cheapest defence that brings the interval down to chance",
    "lowers": "No defence tried stops it; the one that lowers it most",
}


def worth_sentence(tradeoff: Tradeoff) -> str:
    """Which defence lowers this leak, and at what cost of accuracy; empty when nothing was compared."""
    weighed = worth(tradeoff)
    if weighed.effect in _WITHOUT:
        return _WITHOUT[weighed.effect]
    return f"{_WITH[weighed.effect]}: {_bought(weighed)}."


def _bought(weighed: Worth) -> str:
    assert weighed.best is not None
    before, after = weighed.base.leak, weighed.best.leak
    words = metric_words(after.row.metric)
    text = (
        f"{defence_words(weighed.best.defence)} ({words.label} {number(before.value, words.unit)} → "
        f"{number(after.value, words.unit)})"
    )
    if weighed.cost == float("inf"):
        price = "its test accuracy was not measured"
    elif weighed.cost <= 0:
        price = "at no cost of test accuracy"
    else:
        price = f"for {weighed.cost * 100:.1f} points of test accuracy"
    luck = ". The two intervals overlap, so the change may be luck" if weighed.may_be_luck else ""
    return f"{text}, {price}{luck}"


def exposure_sentence(exposure: Exposure) -> str:
    """Who or what is at risk; never more than the intervals support."""
    first, total = exposure.highest, len(exposure.risks)
    score = f"(AUC {number(first.value)})"
    if not exposure.judged:
        return (
            f"{_name(first)} has the highest score {score}, but without intervals nothing can be said "
            "about who is at risk."
        )
    some = f"{exposure.kind}s" if total > 1 else exposure.kind
    if not exposure.exposed:
        return f"Nothing was shown for any of {total} {some}, which is no proof of safety."
    if exposure.kind == "client":
        text = f"{_name(first)}'s records are the easiest to find {score}"
    else:
        text = f"Records are easiest to find after {_name(first).lower()} {score}"
        if (start := exposure.exposed[0]) is not first:
            text += f", and a leak first shows after {_name(start).lower()}"
    clear = total - len(exposure.exposed)
    rest = (
        f"for {clear} of {total} {some} nothing was shown."
        if clear
        else f"for every {exposure.kind} the attack beats a blind guess."
    )
    luck = f" All intervals overlap, so which {exposure.kind} comes first may be luck."
    return f"{text}; {rest}{luck if exposure.order_may_be_luck else ''}"


def _name(risk: Risk) -> str:
    if risk.kind == "round":
        return f"Round {risk.index + 1}"
    return f"Client {one_line(risk.name, LONGEST_NAME) if risk.name else risk.index}"

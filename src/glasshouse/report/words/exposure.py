"""Who is at risk, and when, in words."""

from glasshouse.exhibits import Risk
from glasshouse.spelling import number
from glasshouse.verdicts.exposure import Exposure


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
    return f"Client {risk.index}" if risk.kind == "client" else f"Round {risk.index + 1}"

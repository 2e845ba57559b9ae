"""What to do: ship, defend or stop, why, at what cost, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glasshouse.spelling import MINUS, defence_words, interval, listed, number, of_hundred
from glasshouse.verdicts.frontier import Choice, Frontier, cost, frontier
from glasshouse.verdicts.informed import knows_defence
from glasshouse.verdicts.limits import DEFAULT, Check, Limits
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import NOT_RUN, metric_words
from glasshouse.verdicts.outcome import SEVERITIES, about_data, outcome, severity, shut_out
from glasshouse.verdicts.weighing import Option, cheapest, nearest, weigh

Action = Literal["ship", "defend", "stop", "cannot tell"]
_MOST_NAMED = 2
_COSTS = {"bytes-up": "bytes sent", "bytes-down": "bytes received", "training-seconds": "seconds of training"}
_SPENT = "epsilon-spent-"
_TRUSTING = "trusting "  # how the words of a promise begin that say who must be trusted
_ENDS = {
    "shown": "what the intervals show",
    "point": "the estimates themselves",
    "possible": "everything that the intervals leave possible",
}


@dataclass(frozen=True)
class Decision:
    """What to do, as the first screen of a page says it; `defence` is what to switch on, if anything.

    `headline` is one imperative sentence; `why` says who learns what today and what is left; `cost` what it
    takes of accuracy, bytes and seconds; `confidence` what stands behind it; `untried` what could not be
    tried, and why, a line each.
    """

    action: Action
    defence: str | None
    headline: str
    why: str
    cost: str
    confidence: str
    untried: tuple[str, ...]

    @property
    def cost_title(self) -> str:
        """What the cost is that of."""
        return "What it costs" if self.action in ("ship", "defend") else "What the closest would cost"

    @property
    def untried_title(self) -> str:
        """How much could not be tried; nothing where all could."""
        count = len(self.untried)
        return f"{count} thing{'s' if count != 1 else ''} could not be tried here" if count else ""


def lines(decision: Decision) -> list[str]:
    """A decision in five lines at most, for a terminal."""
    titled = {"Why": decision.why, decision.cost_title: decision.cost, "How sure": decision.confidence}
    said = [decision.headline, *(f"{title}: {words}" for title, words in titled.items() if words)]
    return [*said, f"{decision.untried_title}."] if decision.untried else said


def decide(measures: Sequence[Measure], limits: Limits = DEFAULT) -> Decision:
    """What to do about these findings; the cheapest defence that keeps every limit, where it takes one."""
    compared = frontier(measures)
    options = weigh(compared, limits)
    base = options[0] if options and compared.base is not None else None
    best = cheapest(options)
    if not any(option.checks for option in options) or not _tried(options):
        action: Action = "cannot tell"
        best = None
    elif base is not None and base.keeps:
        action, best = "ship", base
    elif best is not None:
        action = "defend"
    else:
        action = "stop" if all(option.shown_to_fail for option in options) else "cannot tell"
        best = nearest(options)
    defence = best.choice.defence if best is not None and action == "defend" else None
    return Decision(
        action,
        defence,
        _headline(action, best, options, limits),
        _why(action, base, best, limits),
        _cost(compared, best, action),
        _confidence(options, best, action, limits),
        tuple(_untried(base or best)),
    )


def _tried(options: Sequence[Option]) -> bool:
    return any(m.value is not None for option in options for m in option.choice.leaks.values())


def _headline(action: Action, best: Option | None, options: Sequence[Option], limits: Limits) -> str:
    if action == "ship":
        return "Ship it as it is."
    if action == "defend" and best is not None:
        return f"Switch on {defence_words(best.choice.defence)}."
    if action == "stop":
        if len(options) < 2:
            return "Do not ship it as it is; no defence was tried."
        paid = f" for {limits.accuracy * 100:g} points of accuracy or less" if limits.accuracy else ""
        return f"Do not ship it: no defence that was tried keeps every limit{paid}."
    if best is None:
        return "Do not decide yet: nothing was tried that says what the training data give away."
    return "Do not decide yet: whether every limit is kept cannot be told."


def _why(action: Action, base: Option | None, best: Option | None, limits: Limits) -> str:
    """Who learns what today, and what is left with the defence."""
    sentences = []
    broken = base.open if base is not None else ()
    if broken:
        found = [one.measure for one in broken if one.measure is not None and one.measure.value is not None]
        found.sort(key=lambda m: -SEVERITIES.index(severity(m)))
        said = [achieved(m) for m in found[:_MOST_NAMED]]
        more = len(broken) - len(said)
        if more:
            counted = f"{more}{' more' if said else ''}"
            said.append(f"{counted} {'limits are' if more > 1 else 'limit is'} not kept")
        sentences.append(f"Undefended, {'; '.join(said)}.")
    if best is None:
        return " ".join(sentences)
    name = "it" if best.choice.defence == "none" else defence_words(best.choice.defence)
    if action in ("ship", "defend"):
        sentences.append(f"{_rule(limits)}{'' if action == 'ship' else f' with {name}'}{_left(best.choice)}.")
    else:
        left = [_briefly(one) for one in best.open]
        failing = listed(left) if left else "it costs too much accuracy"
        sentences.append(f"{name[:1].upper()}{name[1:]} comes closest: {failing}.")
    return " ".join([*sentences, *_promises(best.choice)])


def _rule(limits: Limits) -> str:
    if not limits.given:
        return "Nobody is shown to learn more than a little"
    return f"Every limit is kept by {_ENDS[limits.end]}"


def _left(choice: Choice) -> str:
    """The most that is left, and whose attack it is."""
    tried = [m for m in choice.leaks.values() if m.value is not None]
    if not tried:
        return ""
    most = max(tried, key=lambda m: SEVERITIES.index(severity(m)))
    how = " that knows the defence" if knows_defence(most) else ""
    if outcome(most) != "leaks":
        return "; no attack is shown to do better than a blind guess"
    return f"; the most is left to the {most.row.adversary}: {_measured(most)} by {_attack(most)}{how}"


def achieved(measure: Measure) -> str:
    """What an adversary got, in words: "the curious server names the client that held a record, ..."."""
    words = metric_words(measure.row.metric)
    assert measure.value is not None
    shown = of_hundred(measure.value) if words.span == (0.0, 1.0) else number(measure.value, words.unit)
    says = words.says.format(value=shown, raw=number(measure.value, words.unit))
    return f"the {measure.row.adversary} {says} ({severity(measure)})"


def _briefly(one: Check) -> str:
    if one.measure is None or one.measure.value is None:
        return f"the {one.limit.adversary} {one.state}"
    return f"the {one.limit.adversary} has {_measured(one.measure)} by {_attack(one.measure)} ({one.state})"


def _measured(measure: Measure) -> str:
    words = metric_words(measure.row.metric)
    text = f"{words.label} {number(measure.value, words.unit)}"
    if measure.low is None and measure.high is None:
        return text
    return f"{text} ({interval(measure.low, measure.high, words.unit)})"


def _attack(measure: Measure) -> str:
    return (measure.row.attack or measure.row.family).partition("(")[0]


def _promises(choice: Choice) -> list[str]:
    """What differential privacy promises under this defence, where it does."""
    return [
        f"It promises each {m.row.metric.removeprefix(_SPENT)} an epsilon of {number(m.value)}{_trusting(m)}."
        for m in choice.measures
        if m.row.metric.startswith(_SPENT) and m.value is not None
    ]


def _trusting(measure: Measure) -> str:
    """Whom a promise asks to be trusted, as its note says."""
    parts = (measure.row.note or "").split("; ")
    return next((f", {part}" for part in parts if part.startswith(_TRUSTING)), "")


def _cost(compared: Frontier, best: Option | None, action: Action) -> str:
    """Accuracy with its interval, then bytes and seconds as far as they were measured."""
    if action == "ship":
        return "Nothing."
    if best is None or compared.base is None:
        return "Not known."
    parts = []
    price = cost(compared.base, best.choice)
    if price is not None:
        paid, low, high = (None if part is None else 100 * part for part in price)
        assert paid is not None
        between = "" if low is None or high is None else f" (95% interval {_signed(low)} to {_signed(high)})"
        parts.append(f"{_signed(paid)} points of test accuracy{between}")
    else:
        parts.append("its test accuracy was not measured")
    before, after = (_figures(choice) for choice in (compared.base, best.choice))
    parts += [
        f"{after[name] / before[name]:.2f} times the {words}"
        for name, words in _COSTS.items()
        if name in before and name in after and before[name] > 0
    ]
    return f"{listed(parts)}."


def _figures(choice: Choice) -> dict[str, float]:
    return {m.row.metric: m.value for m in choice.measures if m.row.metric in _COSTS and m.value is not None}


def _signed(points: float) -> str:
    return f"{points:.1f}".replace("-", MINUS)


def _confidence(options: Sequence[Option], best: Option | None, action: Action, limits: Limits) -> str:
    """The rule that decided, how many seeds and records stand behind it, and what is not excluded."""
    judged = [m for m in best.choice.leaks.values() if m.value is not None] if best is not None else []
    if best is None or not judged:
        return "No attack gave a number to be sure of."
    by_default = "" if limits.given else ", as no limits were given"
    sentences = [f"Decided by {_ENDS[limits.end]} at 95%{by_default}."]
    missing = [f"the {one.limit.adversary}" for one in best.checks if one.state == "could not be tried"]
    if missing:
        sentences.append(f"Of {listed(missing)} nothing could be tried, which is no proof of safety.")
    out = [f"the {one.limit.adversary}" for one in best.checks if one.measure and shut_out(one.measure)]
    if out:
        sentences.append(f"Kept out by all that was tried: {listed(out)}.")
    seeds = max(len(m.values) for m in judged)
    counts = [m.n for m in judged if m.n is not None]
    span = dict.fromkeys((min(counts), max(counts))) if counts else ()
    among = f"; {' to '.join(map(str, span))} answers stand behind each number" if counts else ""
    sentences.append(f"{'One seed' if seeds == 1 else f'{seeds} seeds'}{among}.")
    if limits.end != "possible" and action in ("ship", "defend"):
        wide = [m for m in judged if SEVERITIES.index(severity(m, "possible")) > 1]
        if wide:
            named = [f"{severity(m, 'possible')} for the {m.row.adversary}" for m in wide]
            sentences.append(f"Not excluded: {listed(named)}.")
    if action == "defend":
        rivals = [defence_words(o.choice.defence) for o in options if o.keeps and o is not best]
        if rivals:
            keep = "keep" if len(rivals) > 1 else "keeps"
            sentences.append(f"{listed(rivals[:_MOST_NAMED])} {keep} the limits too, at no lower cost.")
    partial = sum(option.choice.partial for option in options)
    if partial:
        sentences.append(f"{partial} other defences met only the cheap attacks, and were set aside.")
    return " ".join(sentences)


def _untried(option: Option | None) -> list[str]:
    """Whose attacks could not be tried, and why, a line each."""
    if option is None:
        return []
    lines = [
        f"{(m.row.adversary or '').capitalize()}, {_attack(m)}: {m.reason}."
        for m in option.choice.measures
        if about_data(m) and m.row.metric == NOT_RUN and m.value is None
    ]
    return list(dict.fromkeys(lines))

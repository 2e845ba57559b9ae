"""What defences buy and cost: one figure of all of them, and one for each adversary."""

from collections.abc import Sequence

from glasshouse.report.figures.frontier import NAMED, Place, frontier_figure, places, point_names, undominated
from glasshouse.report.figures.panel import Panel, kept
from glasshouse.report.figures.privacy import drawn_tradeoffs, privacy_figure
from glasshouse.report.run import Run
from glasshouse.report.words.leaks import worth_sentence
from glasshouse.report.words.names import adversary_words, attack_words, defence_words
from glasshouse.spelling import listed
from glasshouse.verdicts.frontier import Frontier
from glasshouse.verdicts.matrix import WEAKER
from glasshouse.verdicts.measure import grouped
from glasshouse.verdicts.tradeoff import Tradeoff


def frontier_panels(run: Run, frontier: Frontier, colours: dict[str, str]) -> list[Panel]:
    """Privacy against accuracy for all defences; none where there is no defence to compare."""
    drawable = places(frontier)
    figure = frontier_figure(drawable, colours)
    if figure is None:
        return []
    caption = (
        "Each point is a defence, judged by the worst attack of any adversary on the training data. Filled "
        "and named or numbered: no other is shown to be better in something and worse in nothing. Hollow: "
        "dominated. A point stands at the severity that is shown for sure; the line up from it ends at what "
        "is possible."
    )
    title = "The worst leak that is left, and the accuracy that is left"
    return [kept(run, title, figure, caption, wide=True, notes=(*_numbered(drawable), *_dominated(drawable)))]


def _numbered(drawable: Sequence[Place]) -> list[str]:
    """What the numbers in the figure stand for, where points are numbered."""
    best = undominated(drawable)
    if len(best) <= NAMED:
        return []
    named = (f"{name} {defence_words(one.choice.defence)}" for name, one in zip(point_names(best), best))
    return [f"{', '.join(named)}."]


def _dominated(drawable: Sequence[Place]) -> list[str]:
    """A line for each defence that dominates others."""
    worse = [one.choice for one in drawable if one.choice.dominated_by]
    return [
        f"{defence_words(better)} dominates {listed([defence_words(one.defence) for one in group])}."
        for better, group in grouped(worse, lambda one: one.dominated_by).items()
    ]


def tradeoff_panels(run: Run, trades: Sequence[Tradeoff], colours: dict[str, str]) -> list[Panel]:
    """What each defence buys and costs, a figure for each adversary.

    It has a panel for each attack, or for the strongest of many. Where a weaker adversary's attack did the
    same, its panel is not drawn again.
    """
    chosen = drawn_tradeoffs(trades)
    panels = []
    for adversary, group in grouped(chosen, lambda one: one[0].adversary).items():
        earlier = [trade for trade, _ in chosen if trade.adversary in WEAKER.get(adversary, ())]
        repeats = {id(trade): _repeated(trade, earlier) for trade, _ in group}
        own = [trade for trade, _ in group if not repeats[id(trade)]]
        notes = [_tradeoff_note(trade, left_out, repeats[id(trade)]) for trade, left_out in group]
        title = adversary_words(adversary).label
        figure = privacy_figure(adversary, own, colours)
        panels.append(kept(run, title, figure, wide=len(own) > 1, notes=tuple(filter(None, notes))))
    return panels


def _tradeoff_note(trade: Tradeoff, left_out: Sequence[Tradeoff], repeated: Tradeoff | None) -> str:
    """What defences do to one attack, in a line under its adversary's figure."""
    if repeated:
        same = adversary_words(repeated.adversary).label.lower()
        return f"{_short_trade(trade)}: the same as the {same}'s."
    said = [worth_sentence(trade)]
    unplaced = [defence_words(p.defence) for p in trade.points if p.accuracy is None]
    if unplaced:
        said.append(f"No accuracy was measured for {', '.join(unplaced)}.")
    if trade.worse_if_known:
        worse = ", ".join(map(defence_words, trade.worse_if_known))
        said.append(f"An attacker who knows the defence gets further under {worse}; that one counts.")
    if left_out:
        said.append(
            f"The strongest of {len(left_out) + 1} attacks; the table below holds the others too, "
            "and a defence that stops this one need not stop them."
        )
    text = " ".join(filter(None, said))
    return f"{_short_trade(trade)}: {text}" if text else ""


def _short_trade(trade: Tradeoff) -> str:
    return ", ".join(filter(None, (attack_words(trade.attack), trade.context)))


def _repeated(trade: Tradeoff, earlier: Sequence[Tradeoff]) -> Tradeoff | None:
    """The same attack by a weaker adversary with the same numbers."""

    def numbers(one: Tradeoff) -> list[tuple[str, float | None]]:
        return [(point.defence, point.leak.value) for point in one.points]

    alike = (one for one in earlier if (one.attack, one.context) == (trade.attack, trade.context))
    return next((one for one in alike if numbers(one) == numbers(trade)), None)

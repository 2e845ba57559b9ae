"""Draws who is at risk, and when: clients ranked, and a line over the rounds."""

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from glasshouse.errors import one_line
from glasshouse.report.figures.drawing import ACCENT, SERIES, SIZE, Drawing, chance_line, drawn, gapped
from glasshouse.report.words.names import adversary_words
from glasshouse.spelling import slug
from glasshouse.verdicts.exposure import Exposure, at_risk

FEW = 25  # clients that fit a figure of the usual width
NAMED = 130  # clients whose numbers still fit under a wide figure
SHORT = 4  # signs of a name that stands upright
LONGEST_NAME = 16
_PALE = SERIES[6]


def clients_figure(exposure: Exposure) -> Drawing:
    """A dot and interval for each client, the most at risk on the left."""
    risks = exposure.risks
    crowd = len(risks)

    def draw(axes: Axes) -> None:
        _chance_line(axes, exposure)
        width, size = (1.6, 7.0) if crowd <= FEW else (1.2, 4.5) if crowd <= NAMED else (0.5, 2.0)
        for place, risk in enumerate(risks):
            colour = ACCENT if at_risk(risk) else _PALE
            if risk.low is not None and risk.high is not None:
                axes.plot([place, place], [risk.low, risk.high], color=colour, linewidth=width, alpha=0.6)
            axes.plot([place], gapped([risk.value]), "o", color=colour, markersize=size, zorder=3)
        axes.set_xlim(-0.8, crowd - 0.2)
        if crowd <= NAMED:
            small = 10 if crowd <= 12 else 8.5 if crowd <= FEW else 7
            names = [_cut(risk.name) or str(risk.index) for risk in risks]
            axes.set_xticks(range(crowd), names, fontsize=small)
            if crowd > FEW or max(map(len, names)) > SHORT:
                axes.tick_params(axis="x", rotation=90, length=2, pad=2)
        else:
            axes.set_xticks([])
        ranked = "client, the most at risk first" if crowd <= NAMED else f"{crowd} clients, ranked"
        axes.set(xlabel=ranked, ylabel=f"AUC of {exposure.attack}")

    who = adversary_words(exposure.adversary).label
    size = SIZE if crowd <= FEW else (10.4, 3.6)
    return drawn(slug("risk-clients", exposure.adversary), f"{who}: risk of each client", draw, size)


def rounds_figure(exposure: Exposure) -> Drawing:
    """A line over the rounds with its interval as a band."""
    rounds = [risk.index + 1 for risk in exposure.risks]

    def draw(axes: Axes) -> None:
        _chance_line(axes, exposure)
        ends = (gapped(risk.low for risk in exposure.risks), gapped(risk.high for risk in exposure.risks))
        axes.fill_between(rounds, *ends, color=ACCENT, alpha=0.18, linewidth=0)
        values = gapped(risk.value for risk in exposure.risks)
        mark = "o" if len(rounds) <= 40 else ""
        axes.plot(rounds, values, marker=mark, markersize=4, color=ACCENT, linewidth=1.8)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="round", ylabel=f"AUC of {exposure.attack}")

    who = adversary_words(exposure.adversary).label
    return drawn(slug("risk-rounds", exposure.adversary), f"{who}: risk by round", draw)


def wide(exposure: Exposure) -> bool:
    """Whether the figure of its clients takes the whole width of the page."""
    return exposure.kind == "client" and len(exposure.risks) > FEW


def _cut(name: str) -> str:
    """A name that fits under a figure."""
    line = one_line(name, len(name))
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"


def _chance_line(axes: Axes, exposure: Exposure) -> None:
    chances = [risk.chance for risk in exposure.risks if risk.chance is not None]
    if chances:
        chance_line(axes, sum(chances) / len(chances))

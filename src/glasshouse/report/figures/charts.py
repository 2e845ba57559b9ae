"""Draws a study's own charts: lines or bars, the paper's numbers hollow, those measured here filled."""

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from glasshouse.exhibits import Chart, Series
from glasshouse.report.figures import drawing
from glasshouse.report.figures.drawing import DASHED, INK, PALETTE, TALL, Drawing, chance_line, drawn, gapped
from glasshouse.spelling import slug

MARKS = 16  # values that fit a chart of the usual width
TICKS = 13  # places of a curve that are named
CROWD = 100  # categories from which a chart names only as many as a curve
_MARKERS = "os^Dv<>P"


def chart_figure(chart: Chart) -> Drawing:
    """A chart with its intervals; a paper's series has the colour of the measured one of its name."""

    def draw(axes: Axes) -> None:
        if chart.log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        look = _colours(chart.series)
        for place, series in enumerate(chart.series):
            if chart.kind == "bars":
                _draw_bars(axes, chart, series, place, look[series.name])
            elif chart.kind == "curves":
                _draw_curve(axes, chart, series, look[series.name][0])
            else:
                _draw_line(axes, chart, series, place, look[series.name])
        if chart.chance is not None:
            chance_line(axes, chart.chance, label="blind guess", zorder=1)
        _name_categories(axes, chart)
        axes.set(xlabel=chart.x, ylabel=chart.y)
        drawing.legend_below(axes, columns=4 if wide(chart) else 2)

    return drawn(slug("chart", chart.name), chart.title, draw, drawing.WIDE if wide(chart) else TALL)


def wide(chart: Chart) -> bool:
    """Whether the chart takes the whole width of the page."""
    return len(chart.categories) * len(chart.series) > MARKS


def undrawn(chart: Chart) -> bool:
    """Whether a value has no place on the chart: none at or below zero on a logarithmic axis."""
    return chart.log_y and any(v is not None and v <= 0 for series in chart.series for v in series.values)


def _draw_line(axes: Axes, chart: Chart, series: Series, place: int, look: tuple[str, str]) -> None:
    colour, marker = look
    beside = series.printed or bool(series.like)
    # Each series stands a little to the side, so that intervals do not hide one another.
    shift = (place - (len(chart.series) - 1) / 2) * min(0.05, 0.28 / len(chart.series))
    heights = _heights(chart, series)
    axes.plot(
        [i + shift for i in range(len(heights))],
        heights,
        color=colour,
        marker=marker,
        markersize=6,
        markerfacecolor="none" if beside else colour,
        linewidth=1.2 if beside else 1.8,
        linestyle=DASHED if beside else "-",
        label=_label(series),
        zorder=3,
    )
    _draw_intervals(axes, chart, series, shift, colour)


def _draw_curve(axes: Axes, chart: Chart, series: Series, colour: str) -> None:
    places = range(len(series.values))
    axes.plot(places, _heights(chart, series), color=colour, linewidth=1.8, label=_label(series), zorder=3)
    if series.low and series.high:
        ends = (gapped(series.low), gapped(series.high))
        axes.fill_between(places, *ends, color=colour, alpha=0.13, linewidth=0, zorder=2)


def _draw_bars(axes: Axes, chart: Chart, series: Series, place: int, look: tuple[str, str]) -> None:
    colour, _ = look
    width = 0.82 / len(chart.series)
    shift = (place - (len(chart.series) - 1) / 2) * width
    bars = [(i + shift, v) for i, v in enumerate(series.values) if v is not None and _drawable(chart, v)]
    axes.bar(
        [x for x, _ in bars],
        [v for _, v in bars],
        width=width * 0.84,
        facecolor="none" if series.printed else colour,
        edgecolor=colour,
        linewidth=1.2,
        linestyle=(0, (3, 1.5)) if series.printed else "-",
        label=_label(series),
        zorder=2,
    )
    _draw_intervals(axes, chart, series, shift, INK)


def _draw_intervals(axes: Axes, chart: Chart, series: Series, shift: float, colour: str) -> None:
    for i, (low, high) in enumerate(zip(series.low, series.high)):
        if low is not None and high is not None and series.values[i] is not None and _drawable(chart, high):
            bottom = low if _drawable(chart, low) else high * 1e-6  # the axis cuts it off
            axes.plot([i + shift] * 2, [bottom, high], color=colour, linewidth=1.1, alpha=0.75, zorder=4)


def _name_categories(axes: Axes, chart: Chart) -> None:
    count = len(chart.categories)
    axes.set_xlim(-0.6, count - 0.4)
    if chart.kind == "curves" or count > CROWD:
        step = -(-count // TICKS)
        axes.set_xticks(range(0, count, step), chart.categories[::step])
        return
    axes.set_xticks(range(count), chart.categories)
    room = (640 if wide(chart) else 280) / max(1, count)  # points for each name
    if max(map(len, chart.categories), default=0) * 6 > room:
        axes.set_xticks(range(count), chart.categories, rotation=30, ha="right", fontsize=9)
    drawn_values = [v for s in chart.series for v in s.values if v is not None and v > 0]
    if chart.log_y and drawn_values:
        axes.set_ylim(bottom=min([*drawn_values, chart.chance or drawn_values[0]]) / 2)


def _heights(chart: Chart, series: Series) -> list[float]:
    return gapped(v if v is not None and _drawable(chart, v) else None for v in series.values)


def _drawable(chart: Chart, value: float) -> bool:
    return value > 0 or not chart.log_y


def _label(series: Series) -> str:
    labelled = re.search(r"printed|paper", series.name, re.IGNORECASE)
    return f"{series.name} (printed)" if series.printed and not labelled else series.name


def _colours(series: Sequence[Series]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each series by name; a printed and a measured one of the same name share them."""
    bases = {one.name: _base(one.like or one.name) for one in series}
    order = list(dict.fromkeys(bases.values()))
    looks = {base: (PALETTE[i % len(PALETTE)], _MARKERS[i % len(_MARKERS)]) for i, base in enumerate(order)}
    return {name: looks[base] for name, base in bases.items()}


def _base(name: str) -> str:
    """What a series is about, without the words that say where its numbers come from."""
    bare = re.sub(r"\b(printed|measured|in the paper|the paper|paper|here)\b", "", name, flags=re.IGNORECASE)
    return re.sub(r"[\W_]+", " ", bare).strip().lower() or name

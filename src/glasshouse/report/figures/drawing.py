"""How every figure of a report looks, and how it becomes SVG for the page, SVG to keep and PNG."""

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from glasshouse.store import write_bytes

INK = "#1c2127"
ACCENT = "#b3401b"
SERIES = ("#2f6db3", "#2e7d5b", "#8a5aa8", "#9a6a00", "#4f7f8f", "#b0527f", "#6b7280", "#5b8c2a")
PALETTE = (ACCENT, *SERIES)
SIZE = (5.1, 3.9)
TALL = (5.1, 4.8)
WIDE = (10.4, 4.4)
DASHED = (0, (4, 3))
_LINES = ("-", "--", ":", "-.")
_MARKS = ("o", "s", "^", "D", "v", "P")
_FONT = "DejaVu Sans"
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": _FONT,
    "font.size": 10.5,
    "text.color": INK,
    "text.parse_math": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.constrained_layout.use": True,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure: `inline` follows the page's colours, `svg` and `png` are files to keep."""

    name: str
    title: str
    inline: str
    svg: bytes
    png: bytes


def keep(drawing: Drawing | None, folder: Path) -> Markup | None:
    """Write the SVG and PNG files; the inline SVG, which is ours and needs no escaping."""
    if drawing is None:
        return None
    write_bytes(folder / f"{drawing.name}.svg", drawing.svg)
    write_bytes(folder / f"{drawing.name}.png", drawing.png)
    return Markup(drawing.inline)


def drawn(
    name: str,
    title: str,
    draw: Callable[[Axes], None],
    size: tuple[float, float] = SIZE,
    finish: Callable[[Axes], None] | None = None,
) -> Drawing:
    """Draw a figure of `size` inches; `name` is its file's name and keeps its ids apart on the page.

    What `finish` adds goes into the layout as it is, and does not move it.
    """
    return drawn_beside(name, title, [draw], 1, size, finish)


def drawn_beside(
    name: str,
    title: str,
    draws: Sequence[Callable[[Axes], None]],
    columns: int,
    size: tuple[float, float],
    finish: Callable[[Axes], None] | None = None,
) -> Drawing:
    """Draw small multiples in rows of `columns`, as `drawn` draws one; `finish` is given the first."""
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=size, dpi=72)
        FigureCanvasAgg(figure)
        rows = -(-len(draws) // columns)
        axes = [figure.add_subplot(rows, columns, place) for place in range(1, len(draws) + 1)]
        for draw, one in zip(draws, axes):
            draw(one)
        # Laid out once, and printed by the canvas: `savefig` would draw each file twice.
        if layout := figure.get_layout_engine():
            layout.execute(figure)
        figure.set_layout_engine("none")
        if finish:
            finish(axes[0])
        svg, png = io.StringIO(), io.BytesIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(svg, metadata=nothing)
        figure.set(dpi=160, facecolor="white")
        canvas = FigureCanvasAgg(figure)
        canvas.print_png(png, metadata={"Software": None})
    text = svg.getvalue()
    return Drawing(name, title, _for_page(text, name, title), text.encode(), png.getvalue())


def legend_below(axes: Axes, columns: int = 2) -> None:
    """Name the lines under the axes, where they cover nothing, in as many columns as long names leave."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0) * 5.4 + 36  # points for a name and its line
    figure = axes.get_figure(root=True)
    assert figure is not None
    columns = max(1, min(columns, int(figure.get_figwidth() * 72 // longest)))
    look: Any = {"handlelength": 1.6, "columnspacing": 1.4}
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)


def chance_line(axes: Axes, height: float, **look: Any) -> None:
    """The score of a blind guess, dashed."""
    axes.axhline(height, color=INK, linewidth=0.9, linestyle=DASHED, **look)


def gapped(values: Iterable[float | None]) -> list[float]:
    """The values to draw, with a gap where there is none."""
    return [math.nan if value is None else value for value in values]


def defence_colours(defences: Sequence[str]) -> dict[str, str]:
    """The same colour for a defence in every figure; the accent for no defence."""
    others = [defence for defence in dict.fromkeys(defences) if defence != "none"]
    return {"none": ACCENT} | {d: SERIES[i % len(SERIES)] for i, d in enumerate(others)}


def defence_marks(defences: Sequence[str]) -> dict[str, str]:
    """A mark for each defence, so that those who share a colour differ in shape."""
    others = [defence for defence in dict.fromkeys(defences) if defence != "none"]
    return {"none": "o"} | {d: _MARKS[i // len(SERIES) % len(_MARKS)] for i, d in enumerate(others)}


def defence_lines(colours: dict[str, str]) -> dict[str, str]:
    """How the line of each defence is drawn, so that those who share a colour differ in their dashes."""
    others = [defence for defence in colours if defence != "none"]
    return {"none": "-"} | {d: _LINES[i // len(SERIES) % len(_LINES)] for i, d in enumerate(others)}


def _for_page(svg: str, name: str, title: str) -> str:
    """The bare <svg> element, its colours those of the page, its ids unlike any other figure's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace(INK, "currentColor").replace(ACCENT, "var(--accent)")
    for index, colour in enumerate(SERIES, 1):
        svg = svg.replace(colour, f"var(--series-{index})")
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", svg)
    svg = re.sub(r"(font: [^;\"]*?px )[^;\"]*", r"\1system-ui, sans-serif", svg)
    # Without a fixed width the figure takes the width of its box.
    opening = re.sub(r'\s(width|height)="[^"]*"', "", svg[: svg.index(">") + 1])
    label = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    opening = opening.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return opening + svg[svg.index(">") + 1 :]

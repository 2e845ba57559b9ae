"""A figure as it stands on the page: titled, captioned, under an anchor of its own."""

from dataclasses import dataclass

from markupsafe import Markup

from glasshouse.report.figures.drawing import Drawing, keep
from glasshouse.report.run import Run
from glasshouse.spelling import slug


@dataclass(frozen=True)
class Panel:
    """A figure under its title, and what to see in it; a `wide` one takes the whole width of the page.

    `name` is its anchor, `notes` are lines under the caption.
    """

    title: str
    svg: Markup | None
    caption: str = ""
    wide: bool = False
    name: str = ""
    notes: tuple[str, ...] = ()


def kept(
    run: Run,
    title: str,
    drawing: Drawing | None,
    caption: str = "",
    wide: bool = False,
    notes: tuple[str, ...] = (),
) -> Panel:
    """The panel of a figure, whose files are kept with the run."""
    name = slug("figure", drawing.name) if drawing else ""
    return Panel(title, keep(drawing, run.folder / "figures"), caption, wide, name, notes)

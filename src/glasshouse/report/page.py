"""The page of one run, built from its folder alone."""

import base64
import mimetypes
import os
import tempfile
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glasshouse.report import figures, words
from glasshouse.report.answers import cards, overall, pooled, tradeoffs, worth
from glasshouse.report.run import Run, read_run
from glasshouse.report.table import findings_table


def write_report(folder: Path) -> Path:
    """Write `report.html` and `figures/` into the run folder; returns the page's path."""
    run = read_run(Path(folder))
    drawings = Drawings(run.folder / "figures")
    page = render("page.html", **_page(run, drawings))
    return write_atomically(run.folder / "report.html", page.encode())


class Drawings:
    """Writes each figure's files and hands its SVG to the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, drawing: figures.Drawing | None) -> Markup | None:
        """Write the SVG and PNG files; the inline SVG, which is ours and needs no escaping."""
        if drawing is None:
            return None
        self.folder.mkdir(exist_ok=True)
        write_atomically(self.folder / f"{drawing.name}.svg", drawing.svg)
        write_atomically(self.folder / f"{drawing.name}.png", drawing.png)
        return Markup(drawing.inline)


def render(template: str, **content: Any) -> str:
    """A template of this package as one self-contained page."""
    environment = Environment(
        loader=PackageLoader("glasshouse", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(words=words, style=_asset("page.css"), script=_asset("page.js"))
    return environment.get_template(template).render(**content)


def write_atomically(path: Path, content: bytes) -> Path:
    """Write so that a reader sees the former file or the whole of this one."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(part).chmod(0o644)
    Path(part).replace(path)
    return path


def _page(run: Run, drawings: Drawings) -> dict[str, Any]:
    audit = pooled(row for row in run.rows if row.source == "audit")
    colours = figures.defence_colours([row.defence or "none" for row in run.rows])
    made = cards(audit)
    return {
        "run": run,
        "cards": made,
        "overall": overall(audit, made),
        "facts": facts(run),
        "panels": [
            (t, drawings.keep(figures.privacy_figure(t, colours)), worth(t)) for t in tradeoffs(audit)
        ],
        "rocs": [drawings.keep(d) for d in _rocs(run, colours)],
        "trainings": [drawings.keep(d) for d in _trainings(run, colours)],
        "gallery": [_exhibit(run.folder, exhibit) for exhibit in run.curves.gallery],
        "findings": findings_table(run.rows, [pooled([row])[0] for row in run.rows]),
    }


def facts(run: Run) -> list[tuple[str, str]]:
    """What was audited: data, model, strategy and clients, as far as the folder says."""
    made = []
    for key in ("data", "model", "strategy"):
        seen = dict.fromkeys(str(getattr(row, key)) for row in run.rows if getattr(row, key))
        seen.pop("central", None)
        if seen:
            made.append((key, ", ".join(seen)))
    clients = run.setting("clients")
    if isinstance(clients, int):
        made.append(("clients", str(clients)))
    return made


def _rocs(run: Run, colours: dict[str, str]) -> list[figures.Drawing]:
    attacks = dict.fromkeys(roc.attack for roc in run.curves.roc)
    return [figures.roc_figure(a, [r for r in run.curves.roc if r.attack == a], colours) for a in attacks]


def _trainings(run: Run, colours: dict[str, str]) -> list[figures.Drawing]:
    strategies = dict.fromkeys(point.strategy for point in run.curves.training)
    return [
        figures.training_figure(s, [p for p in run.curves.training if p.strategy == s], colours)
        for s in strategies
    ]


def _exhibit(folder: Path, exhibit: Any) -> dict[str, Any]:
    return {
        "exhibit": exhibit,
        "original": _data_uri(folder / exhibit.original),
        "result": _data_uri(folder / exhibit.result),
    }


def _data_uri(path: Path) -> str | None:
    if not path.is_file():
        return None
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _asset(name: str) -> Markup:
    return Markup((Path(__file__).parent / name).read_text(encoding="utf-8"))

"""How values become a self-contained page: the templates and what they may ask."""

import json
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glasshouse.report.words.comparing import shift_class, shift_words
from glasshouse.report.words.ladder import ladder_sentence
from glasshouse.report.words.matrix import (
    attack_form,
    cell_class,
    cell_details,
    cell_number,
    cost_interval,
    cost_name,
    cost_unit,
    cost_words,
    dots,
    grade,
    outcome_words,
    same_as_sentence,
    severity_class,
)
from glasshouse.report.words.measures import (
    caution,
    compact,
    expert,
    noticed,
    sentence,
    short_verdict,
    verdict,
)
from glasshouse.report.words.names import adversary_words, defence_words
from glasshouse.report.words.robustness import gradient_remarks, robustness_sentence
from glasshouse.showing import verdict_words
from glasshouse.spelling import slug
from glasshouse.verdicts.metrics import VETTING, family_words, metric_words

_OF_MEASURES = (verdict, short_verdict, caution, compact, expert, sentence, noticed)
_OF_NAMES = (adversary_words, defence_words, family_words, metric_words)
_OF_CELLS = (cell_class, cell_details, cell_number, dots, grade, same_as_sentence)
_OF_OUTCOMES = (attack_form, outcome_words, severity_class, cost_name, cost_words, cost_interval, cost_unit)
_OF_SECTIONS = (robustness_sentence, gradient_remarks, ladder_sentence)
_OF_DIFFERENCES = (verdict_words, shift_class, shift_words)
FILTERS = (*_OF_DIFFERENCES, *_OF_MEASURES, *_OF_NAMES, *_OF_CELLS, *_OF_OUTCOMES, *_OF_SECTIONS)

ACTIONS = {"ship": "Ship", "defend": "Defend", "stop": "Stop", "cannot tell": "Cannot tell"}
COLUMNS = 7
"""Defences that stand side by side at 1280 pixels; more of them stand below each other."""


@dataclass(frozen=True)
class Scale:
    """Positions on a bar whose ends are `low` and `high`, as CSS."""

    low: float
    high: float

    def at(self, value: float) -> str:
        """A mark at `value`."""
        return f"left:{self._percent(value):.2f}%"

    def between(self, first: float, second: float) -> str:
        """A stretch between two values, in either order."""
        left, right = sorted((self._percent(first), self._percent(second)))
        return f"left:{left:.2f}%;width:{right - left:.2f}%"

    def _percent(self, value: float) -> float:
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))


def render(template: str, page: object) -> str:
    """A template of this package, filled from the attributes of `page`."""
    environment = Environment(
        loader=PackageLoader("glasshouse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({words.__name__: words for words in FILTERS})
    environment.filters["anchor"] = lambda name: slug("adversary", name)
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    environment.globals.update(
        scale=lambda span: Scale(*span),
        VETTING=VETTING,
        ACTIONS=ACTIONS,
        COLUMNS=COLUMNS,
        style=_asset("page.css"),
        script=_asset("page.js"),
    )
    return environment.get_template(template).render(page=page)


def _asset(name: str) -> Markup:
    return Markup((Path(__file__).parent / "templates" / name).read_text(encoding="utf-8"))

"""Fill the tables of these pages from the registries, and the README's from the folder of an audit.

    python docs/tables.py              what can be named
    python docs/tables.py runs/audit   also the results in the README

A table stands between `<!-- table: attacks -->` and `<!-- end of table -->`.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from glasshouse.listing import REGISTRIES, options, summary
from glasshouse.report.run import read_run
from glasshouse.report.tables.robustness import comparison_table
from glasshouse.report.words.measures import achievement
from glasshouse.report.words.names import defence_words
from glasshouse.spelling import interval, number, of_hundred
from glasshouse.verdicts.comparison import comparison
from glasshouse.verdicts.informed import uninformed
from glasshouse.verdicts.measure import (
    Measure,
    by_attack,
    federated,
    headline,
    leaks,
    ordered_adversaries,
    reach,
)
from glasshouse.verdicts.metrics import metric_words
from glasshouse.verdicts.pooling import pooled

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def names_table(kind: str) -> str:
    """Every name of `kind` with its options and the sentence that its code opens with."""
    registry = REGISTRIES[kind]
    entries = {name: registry.load(name) for name in registry}
    header = ["name", *(["adversary", "is given"] if kind == "attacks" else []), "options", "what it does"]
    rows = []
    for name, entry in entries.items():
        cells = [f"`{name}`"]
        if kind == "attacks":
            cells += [
                ", ".join(access.adversary for access in entry.needs),
                ", ".join(registry.make(name).knows) or "nothing",
            ]
        rows.append([*cells, ", ".join(f"`{option}`" for option in options(entry)), summary(entry)])
    if all(row[-2] == "" for row in rows):
        header, rows = [*header[:-2], header[-1]], [[*row[:-2], row[-1]] for row in rows]
    return _table(header, rows)


def results_table(folder: Path) -> str:
    """What each adversary learned from the undefended federation, in its attack's leading metric."""
    rows = []
    for measure in _leading(folder):
        if measure.row.defence == "none" and measure.value is not None:
            words = metric_words(measure.row.metric)
            rows.append(
                [
                    measure.row.adversary,
                    f"`{measure.row.attack}`",
                    achievement(measure.row.metric, measure.row.family).format(
                        value=of_hundred(measure.value), raw=number(measure.value)
                    ),
                    f"{words.label} {_with_interval(measure)}",
                    number(measure.chance),
                    str(measure.n),
                ]
            )
    return _table(["adversary", "attack", "what it achieves", "value (95% interval)", "chance", "n"], rows)


def price_table(folder: Path) -> str:
    """What is left of each attack under each defence, bold where its interval still beats chance.

    Of an attack that also knows the defence the form stands there that got further.
    """
    measures = pooled(read_run(folder).rows)
    leading = _leading(folder)
    attacks = list(dict.fromkeys((m.row.adversary, uninformed(m.row.attack), m.row.metric) for m in leading))
    accuracy = {
        m.row.defence: m for m in measures if m.row.metric == "test-accuracy" and m.row.strategy != "central"
    }
    found = {
        (m.row.defence, m.row.adversary, uninformed(m.row.attack)): m for m in sorted(leading, key=reach)
    }
    rows = [["test accuracy", *(number(utility.value) for utility in accuracy.values())]]
    for adversary, attack, metric in attacks:
        cells = [found[defence, adversary, attack] for defence in accuracy]
        marked = [f"**{number(m.value)}**" if m.judged == "leak" else number(m.value) for m in cells]
        rows.append([f"{adversary}: `{attack}`, {metric_words(metric).label}", *marked])
    return _table(["", *map(defence_words, accuracy)], rows)


def robustness_table(folder: Path) -> str:
    """The federated model beside the central one: accuracy under each evasion attack, and curvature."""
    run = read_run(folder)
    made = comparison(pooled(run.rows), run.curves.robustness)
    if made is None:
        return ""
    table = comparison_table(made)
    rows = [[cell.text for cell in row] for row in table.rows]
    return _table(["", *(column.label for column in table.columns[1:])], rows)


def filled(text: str, folder: Path | None = None) -> str:
    """The page `text` with its tables made anew; those of an audit only if its folder is given."""

    def fill(found: re.Match[str]) -> str:
        kind = found[2]
        if kind in REGISTRIES:
            made = names_table(kind)
        elif folder is None:
            return found[0]
        else:
            made = MEASURED[kind](folder)
        return f"{found[1]}\n{made}\n{found[3]}"

    return re.sub(r"(<!-- table: (\w+) -->).*?(<!-- end of table -->)", fill, text, flags=re.DOTALL)


MEASURED = {"results": results_table, "price": price_table, "robustness": robustness_table}


def _leading(folder: Path) -> list[Measure]:
    """The leading metric of each attack by each adversary under each defence."""
    measures = [m for m in federated(pooled(read_run(folder).rows)) if leaks(m)]
    lead = {key: headline(group) for key, group in by_attack(measures).items()}
    order = ordered_adversaries(measures)
    chosen = [m for key, group in by_attack(measures).items() for m in group if m.row.metric == lead[key]]
    return sorted(chosen, key=lambda m: order.index(m.row.adversary or ""))


def _with_interval(measure: Measure) -> str:
    return f"{number(measure.value)} ({interval(measure.low, measure.high)})"


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    audited = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for page in PAGES:
        page.write_text(filled(page.read_text(), audited))

"""One page that sets several runs side by side: in what they differ, and what of their numbers that moves."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from glasshouse.errors import BadInput
from glasshouse.findings import Finding
from glasshouse.report.differing import Differing, Experiment, differing, experiments, why_unpaired
from glasshouse.report.rendering import render
from glasshouse.report.tables import comparing
from glasshouse.report.tables.table import Table
from glasshouse.report.words.comparing import lede, pooling_notes, terminal_lines
from glasshouse.showing import Differences
from glasshouse.store import write_text
from glasshouse.verdicts.differences import Difference, difference
from glasshouse.verdicts.measure import Measure, by_access, grouped, headline
from glasshouse.verdicts.metrics import CENTRAL, NOT_RUN
from glasshouse.verdicts.pairing import sides
from glasshouse.verdicts.pooling import pooled


@dataclass(frozen=True)
class Contest:
    """One experiment against the first: every number that both have, and those that lead for an attack."""

    first: str
    second: str
    everything: Differences
    leading: Differences

    @property
    def by_adversary(self) -> list[tuple[str, list[Difference]]]:
        """The leading differences of each adversary, from the least access to the most."""
        on_trial = [one for one in self.leading if one.row.strategy != CENTRAL]
        groups = grouped(on_trial, lambda one: one.row.adversary or "")
        return [(name, groups[name]) for name in by_access(name for name in groups if name)]

    @property
    def reach(self) -> float:
        """How far the bars of its differences go to either side."""
        ends = [abs(end) for one in self.leading for end in (one.low, one.high) if end is not None]
        return max([0.05, *(end for end in ends if end <= 1)])


@dataclass(frozen=True)
class ComparedRuns:
    """Runs beside each other: the first, and every other one against it.

    `among` differences lead, and verdicts on them are corrected for their number.
    """

    compared: tuple[Experiment, ...]
    contests: tuple[Contest, ...]

    @property
    def title(self) -> str:
        """How many runs there are."""
        count = sum(len(one.runs) for one in self.compared)
        return f"{count} runs side by side" if self.contests else f"{count} runs of one experiment"

    @cached_property
    def differing(self) -> list[Differing]:
        """Every setting in which they are not alike."""
        return differing(self.compared)

    @property
    def causes(self) -> list[str]:
        """The names of these."""
        return [one.name for one in self.differing]

    @property
    def among(self) -> int:
        """How many leading differences can be judged."""
        judged = (one for contest in self.contests for one in contest.leading if one.low is not None)
        return max(1, sum(1 for _ in judged))

    @property
    def differences(self) -> Differences:
        """The leading differences of all contests."""
        return Differences(one for contest in self.contests for one in contest.leading)

    @property
    def single(self) -> bool:
        """Whether a difference may be the luck of one training."""
        return any(len(one.seeds) < 2 for one in self.compared)

    @property
    def lede(self) -> str:
        """What the differences show, in a sentence."""
        return lede(self.differences, self.among)

    @property
    def notes(self) -> list[str]:
        """Which runs were taken together."""
        return pooling_notes(self.compared)

    @property
    def settings(self) -> Table:
        """The runs, and what differs."""
        return comparing.settings_table(self.compared, self.differing)

    @property
    def tables(self) -> list[Table]:
        """Both values and their difference: of each contest the numbers that lead, then all of them."""
        if not self.contests:
            (only,) = self.compared
            return [comparing.pooled_table(only.name, pooled(only.rows, same_records=only.same_records))]
        leading = [comparing.leading_table(c.first, c.second, c.leading, self.among) for c in self.contests]
        return leading + [comparing.full_table(c.first, c.second, c.everything) for c in self.contests]

    def __str__(self) -> str:
        return "\n".join(
            terminal_lines(self.compared, self.differing, self.notes, self.differences, self.among)
        )


def compare_runs(folders: Sequence[Path]) -> ComparedRuns:
    """Read runs, find in what they differ, and set what can be compared beside each other."""
    if len(folders) < 2:
        raise BadInput(f"{len(folders)} run folder to compare; give at least two")
    folders = [Path(folder) for folder in folders]
    compared = experiments(folders, distinct_names(folders))
    first, *others = compared
    key = _key_of(_varying_inside(compared))
    return ComparedRuns(tuple(compared), tuple(_contest(first, other, key) for other in others))


def compare_reports(folders: Sequence[Path], out: Path) -> Path:
    """Write a page that compares the runs in `folders`; returns its path.

    `out` is the page itself when it ends in .html, else a folder that receives `report.html`.
    """
    return write_comparison(compare_runs(folders), out)


def write_comparison(runs: ComparedRuns, out: Path) -> Path:
    """Write the page of a comparison."""
    page = Path(out) if Path(out).suffix == ".html" else Path(out) / "report.html"
    own = {run.folder.resolve() for one in runs.compared for run in one.runs}
    if page.parent.resolve() in own and page.name == "report.html":
        raise BadInput(f"{out}: holds a run's own report; name another folder or a file ending in .html")
    write_text(page, render("compare.html", runs))
    return page


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    paths = [folder.resolve() for folder in folders]
    longest = max(len(path.parts) for path in paths)
    for length in range(1, longest):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({number})" for number, path in enumerate(paths, 1)]


def _contest(first: Experiment, second: Experiment, key: Callable[[Finding], Hashable]) -> Contest:
    a, b = (
        sides(
            one.name,
            [row for row in one.rows if row.metric != NOT_RUN],
            one.records,
            key,
            same_records=one.same_records,
        )
        for one in (first, second)
    )
    unpaired = why_unpaired(first, second)
    everything = [difference(a[name], b[name], unpaired=unpaired) for name in a if name in b]
    return Contest(first.name, second.name, Differences(everything), Differences(_leading(everything)))


def _leading(differences: Iterable[Difference]) -> list[Difference]:
    """Of each attack under each defence the number that leads, and the accuracy of the model."""

    def attack(one: Difference) -> Hashable:
        row = one.row
        return (
            row.cell,
            row.adversary,
            row.attack,
            row.defence,
            row.strategy,
            row.data,
            row.model,
            row.family,
        )

    told = [one for one in differences if one.of_leak or one.row.metric == "test-accuracy"]
    leading = []
    for group in grouped(told, attack).values():
        metric = headline([one.first for one in group])
        leading += [one for one in group if one.row.metric == metric]
    return leading


def _varying_inside(compared: Sequence[Experiment]) -> list[str]:
    """The keys that tell findings of one run apart, beyond attack, defence and metric."""
    keys = ("source", "cell", "strategy", "data", "model")
    on_trial = [[row for row in one.rows if row.strategy != CENTRAL] for one in compared]
    repeated = [key for key in keys if any(len({getattr(row, key) for row in rows}) > 1 for rows in on_trial)]
    # A cell names data, model, strategy and defence at once: where these tell findings apart, it need not.
    without = [key for key in repeated if key != "cell"]
    measured: list[list[Measure]] = [pooled(one.rows) for one in compared]  # for their keys alone
    key = _key_of(without)
    clash = any(len({key(m.row) for m in measures}) < len(measures) for measures in measured)
    return repeated if clash else without


def _key_of(inside: Sequence[str]) -> Callable[[Finding], Hashable]:
    def key(row: Finding) -> Hashable:
        baseline = CENTRAL if row.strategy == CENTRAL else ""
        fixed = (row.adversary, row.attack, row.defence or "none", row.metric, row.family, baseline)
        return (*fixed, *(getattr(row, name) for name in inside))

    return key

"""In what runs differ, by what their folders say, and which of them are one experiment with several seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from glasshouse.errors import BadInput
from glasshouse.exhibits import Records
from glasshouse.findings import Finding
from glasshouse.reading import parse_toml
from glasshouse.report.run import Run, read_run
from glasshouse.runfolder import read_origin
from glasshouse.scores import SCORES, read_scores
from glasshouse.spelling import listed
from glasshouse.verdicts.metrics import CENTRAL

SEEDS, FIRST_WEIGHTS, DATA = "seeds", "first weights", "fingerprint of the data"
OF_ROWS = {"data": "data.name", "model": "model.name", "strategy": "training.strategy"}
"""What the findings say themselves, and the keys of a configuration that say the same."""

LONGEST = 300
"""Characters of a setting that are shown."""

NONE = "none"

Setting = str | tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """One run, or several that differ by their seeds alone."""

    name: str
    runs: tuple[Run, ...]

    @cached_property
    def rows(self) -> tuple[Finding, ...]:
        """The findings of all its runs; those of a seed that two runs have are counted once."""
        return tuple(row for run, seeds in self._seeds for row in run.rows if row.seed in seeds)

    @cached_property
    def records(self) -> tuple[Records, ...]:
        """What is kept of single records."""
        kept = ((read_scores(run.folder / SCORES), seeds) for run, seeds in self._seeds)
        return tuple(one for records, seeds in kept for one in records if one.seed in seeds)

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """What its configuration, its code and its data are, by name."""
        return settings_of(self.runs[0]) | {SEEDS: tuple(map(str, sorted(self.seeds)))}

    @property
    def seeds(self) -> set[int]:
        """The seeds of all its runs."""
        return {row.seed for run in self.runs for row in run.rows if row.seed is not None}

    @property
    def same_records(self) -> bool:
        """Whether every seed was asked about the same records."""
        return any(run.same_records for run in self.runs)

    @property
    def doubled(self) -> set[int]:
        """The seeds that more than one of its runs has."""
        return {seed for seed in self.seeds if sum(seed in _seeds_of(run) for run in self.runs) > 1}

    @cached_property
    def _seeds(self) -> list[tuple[Run, set[int | None]]]:
        """Of each run the seeds that no run before it has."""
        taken: set[int | None] = set()
        fresh = []
        for run in self.runs:
            fresh.append((run, _seeds_of(run) - taken))
            taken |= _seeds_of(run)
        return fresh


@dataclass(frozen=True)
class Differing:
    """A setting in which experiments differ, as each has it."""

    name: str
    values: tuple[str, ...]


def experiments(folders: Sequence[Path], names: Sequence[str]) -> list[Experiment]:
    """The runs in the folders, those that differ by seed alone as one; refuses what cannot be compared."""
    doubled = [
        folder for place, folder in enumerate(folders) if folder.resolve() in _resolved(folders[:place])
    ]
    if doubled:
        raise BadInput(f"{doubled[0]} is named twice; name two different runs")
    found: list[Experiment] = []
    for name, run in zip(names, [read_run(folder) for folder in folders]):
        same = next((one for one in found if _same_but_for_seeds(one.runs[0], run)), None)
        if same is None:
            found.append(Experiment(name, (run,)))
        else:
            joined = Experiment(f"{same.name} + {name}", (*same.runs, run))
            found[found.index(same)] = joined
    _check_kinds(found)
    return found


def differing(compared: Sequence[Experiment]) -> list[Differing]:
    """Every setting in which the experiments are not alike; of a list what not all of them name."""
    settings = [one.settings for one in compared]
    names = list(dict.fromkeys(name for one in settings for name in one))
    return [
        Differing(name, values)
        for name in names
        if len(set(values := _shown([one.get(name) for one in settings]))) > 1
    ]


def why_unpaired(first: Experiment, second: Experiment) -> str:
    """Why positions in the data do not mean the same records in both; empty where they are known to."""
    mine, yours = first.settings.get(DATA), second.settings.get(DATA)
    if mine is None or yours is None:
        return "it is not known whether the data are the same"
    return "" if mine == yours else "the data differ"


def settings_of(run: Run) -> dict[str, Setting]:
    """What a run's folder says of it: the configuration, versions and fingerprints, results aside."""
    settings: dict[str, Setting] = {}
    for key in OF_ROWS:
        seen = dict.fromkeys(str(getattr(row, key)) for row in run.rows if getattr(row, key))
        if len(seen) > 1:
            seen.pop(CENTRAL, None)
        if seen:
            settings[key] = ", ".join(seen)
    settings |= {
        name: value for name, value in _flat(_toml(run.config)) if name not in {*OF_ROWS.values(), "seed"}
    }
    code, given = read_origin(run.config or "")
    versions = {**code, **(run.environment or {})}
    settings |= {
        f"version of {name}" if "." in value else f"code of {name}": value for name, value in versions.items()
    }
    if "data" in given:
        settings[DATA] = given.pop("data")
    return settings | given


def _seeds_of(run: Run) -> set[int | None]:
    return {row.seed for row in run.rows}


def _resolved(folders: Sequence[Path]) -> set[Path]:
    return {folder.resolve() for folder in folders}


def _same_but_for_seeds(first: Run, second: Run) -> bool:
    """Whether the configurations, code and data are known to be the same, and the seeds are not."""
    if first.config is None or second.config is None or first.rows[0].source != second.rows[0].source:
        return False
    mine, yours = _unseeded(settings_of(first)), _unseeded(settings_of(second))
    return mine == yours and _seeds_of(first) != _seeds_of(second)


def _unseeded(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings without what the seed decides."""
    drawn = set()
    if not settings.get("model.weights"):
        drawn.add(FIRST_WEIGHTS)
    if settings.get("data.holdout") == "whole-clients":  # which of them train, and so how many, is drawn
        drawn.add("data.clients")
    return {name: value for name, value in settings.items() if name not in drawn}


def _check_kinds(compared: Sequence[Experiment]) -> None:
    """Refuse runs of different kinds, which share no question."""
    kinds = {one.name: _kind(one) for one in compared}
    if len(set(kinds.values())) > 1:
        told = listed([f"{name} is {kind}" for name, kind in kinds.items()])
        raise BadInput(f"{told}, which share no question; compare runs of one kind")


def _kind(one: Experiment) -> str:
    """What an experiment is: its runs ask the same questions only of others of their kind."""
    if any(run.curves.statements for run in one.runs):
        return "an inspected update"
    names = sorted({row.source for row in one.rows})
    return "an audit" if names == ["audit"] else f"the study {', '.join(names)}"


def _shown(values: Sequence[Setting | None]) -> tuple[str, ...]:
    """The values as text, of lists only what not all have."""
    lists = [value for value in values if isinstance(value, tuple)]
    if len(lists) == len(values):
        common = set.intersection(*map(set, lists))
        kept = ["; ".join(item for item in value if item not in common) for value in lists]
        if any(kept):
            return tuple(
                _cut(text) or ("none of these" if value else NONE) for text, value in zip(kept, lists)
            )
        return tuple("; ".join(value) for value in lists)  # the same ones in another order
    return tuple(
        "not set" if value is None else _cut("; ".join(value) if isinstance(value, tuple) else value) or NONE
        for value in values
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _toml(text: str | None) -> Mapping[str, Any]:
    try:
        return parse_toml(text or "")
    except ValueError:
        return {}  # the run's own page shows the text as it is


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Setting]]:
    """Every entry with its full name, `training.rounds`."""
    waiting = [(above, tree)]
    while waiting:
        prefix, table = waiting.pop(0)
        for key, value in table.items():
            name = f"{prefix}{key}"
            if isinstance(value, dict):
                waiting.append((f"{name}.", value))
            elif isinstance(value, list):
                yield name, tuple(map(str, value))
            else:
                yield name, str(value)

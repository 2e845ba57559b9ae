"""What is measured of each federation: how well its models do round by round, what travels, what it takes."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from glasshouse.federation.federation import Diverged
from glasshouse.federation.history import Round
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, proportion
from glasshouse.studies.fed_fsnet.printed import printed
from glasshouse.studies.fed_fsnet.rows import Row
from glasshouse.studies.fed_fsnet.scales import Task
from glasshouse.studies.fed_fsnet.training import Trained, train
from glasshouse.studies.study import Workplace

LATE = 5
"""So many of the last rounds make up a late accuracy."""
STEADY = 20
"""Over so many of the last rounds, but no more than half, a curve should have settled."""
POINTS = 25
"""So many points of the curve are kept."""
CURVE = "acc-global-round-"
"""How the metrics of the curve begin; the round, counted from 1, follows."""


def table_cell(task: Task, fraction: float, row: Row, watched: bool, place: Workplace) -> list[Finding]:
    """One federation, trained and examined."""
    common = shared(task, fraction, row)
    try:
        trained = train(task, fraction, row, place, watched=watched)
    except Diverged as error:
        reason = (*common["assumes"], f"not estimable: {error}")
        return [Finding(**common | {"assumes": reason}, family="utility", metric="test-accuracy", value=None)]
    common |= {"family": "utility"}
    return [
        *_accuracies(trained, printed(task.data, row.name, fraction), common),
        *_curve(trained.history.rounds, common),
        *_costs(trained, common),
    ]


def shared(task: Task, fraction: float, row: Row) -> dict[str, Any]:
    """What all findings of a row say."""
    division = row.partition.partition("(")[0]
    said = (
        f"{task.sizes.devices} devices ({division}), {fraction:g} of them a round, "
        f"{task.rounds} rounds of {task.epochs} epochs"
    )
    return {
        "source": "",
        "cell": "",
        "strategy": task.spec(row),
        "data": task.data,
        "model": task.model,
        "assumes": (said,),
    }


def _accuracies(
    trained: Trained, paper: tuple[float | None, float | None], common: dict[str, Any]
) -> Iterator[Finding]:
    """After the last round, and the mean over the last few, which is steadier."""
    test = trained.split.images("test").label_counts()
    n, majority = int(test.sum()), test.max().item() / int(test.sum())
    rounds = trained.history.rounds
    everywhere, local = _both(rounds)
    common = common | {"chance": majority}
    last = proportion(round(everywhere[-1] * n), n)
    yield Finding(**common, metric="test-accuracy", **last.entries(), printed=paper[0])
    yield _number("late-accuracy", statistics.fmean(everywhere[-LATE:]), len(everywhere[-LATE:]), common)
    participants = len(rounds[-1].clients)
    yield _number("local-accuracy", local[-1], participants, common | {"printed": paper[1]})
    yield _number("late-local-accuracy", statistics.fmean(local[-LATE:]), len(local[-LATE:]), common)


def _curve(rounds: Sequence[Round], common: dict[str, Any]) -> Iterator[Finding]:
    """Points of the curve of the global model, its mean, and how much it still moves at its end."""
    everywhere, _ = _both(rounds)
    step = max(1, len(everywhere) // POINTS)
    for number in sorted({1, *range(step, len(everywhere), step), len(everywhere)}):
        yield _number(f"{CURVE}{number}", everywhere[number - 1], 1, common)
    yield _number("mean-accuracy", statistics.fmean(everywhere), len(everywhere), common)
    late = everywhere[-min(STEADY, len(everywhere) // 2) :]
    jumps = [abs(after - before) for before, after in pairwise(late)]
    yield _number("wobble", statistics.stdev(late), len(late), common)
    yield _number("jump", statistics.fmean(jumps), len(jumps), common)


def _costs(trained: Trained, common: dict[str, Any]) -> Iterator[Finding]:
    """Bytes to and from a device, and core-seconds of all devices and the server, for each round."""
    rounds = trained.history.rounds
    yield _number("bytes-down", statistics.fmean(row.down for row in rounds), len(rounds), common)
    yield _number("bytes-up", statistics.fmean(row.up for row in rounds), len(rounds), common)
    if trained.seconds is not None:
        yield _number("seconds-per-round", trained.seconds, len(rounds), common)


def _number(metric: str, value: float, n: int, common: dict[str, Any]) -> Finding:
    """A number whose spread only other seeds show."""
    return Finding(**common, metric=metric, **Estimate(value, None, None, n).entries())


def _both(rounds: Sequence[Round]) -> tuple[list[float], list[float]]:
    """The accuracies of the global model and of the participants' own, round by round."""
    everywhere = [row.acc_global for row in rounds if row.acc_global is not None]
    local = [row.acc_local for row in rounds if row.acc_local is not None]
    assert len(everywhere) == len(local) == len(rounds)
    return everywhere, local

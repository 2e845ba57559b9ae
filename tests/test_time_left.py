"""How long a run still takes, by its plan and its pace; and how that is shown."""

import io
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from glasshouse.progress import QUIET_FOR, Progress
from glasshouse.progress.bars import Bars
from glasshouse.progress.time_left import Stage, TimeLeft, arrivals, duration, makespan

KINDS = ("training", "attacks", "shadow models")

WORK = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.floats(0.1, 20), min_size=1, max_size=8)),
    min_size=2,
    max_size=6,
)
"""Stages, each of a kind and with the seconds of its steps."""


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stages_of(work, workers=1):
    return [Stage(f"{n}", tuple(arrivals(jobs, workers)), kind) for n, (kind, jobs) in enumerate(work)]


def lived(stages, left, factor):
    """Steps that each take `factor` times what was planned: at each end, what has passed and what is left."""
    now = 0.0
    for stage in stages:
        course = left.begin(stage.label, len(stage.seconds), 0, now)
        for number, seconds in enumerate(stage.seconds, 1):
            now += factor * seconds
            left.reach(course, number, now)
            yield now, left.seconds(now)
        left.end(course, now)


@given(WORK, st.floats(0.05, 20), st.integers(1, 4))
def test_after_a_tenth_the_time_left_is_right_however_wrong_the_plan_was_by_one_factor(work, factor, workers):
    stages = stages_of(work, workers)
    whole = factor * sum(stage.total for stage in stages)
    for elapsed, left in lived(stages, TimeLeft(stages), factor):
        if elapsed >= 0.1 * whole:
            assert left == pytest.approx(whole - elapsed, rel=1e-6, abs=1e-6 * whole)


@given(WORK)
def test_before_anything_is_done_the_plan_speaks_and_between_two_steps_time_passes(work):
    stages = stages_of(work)
    left, whole = TimeLeft(stages), sum(stage.total for stage in stages)
    assert left.seconds(0.0) == pytest.approx(whole)
    left.begin("0", len(stages[0].seconds), 0, 0.0)
    half = stages[0].seconds[0] / 2
    assert left.seconds(half) == pytest.approx(whole - half)


def test_a_kind_of_work_that_was_planned_too_short_is_corrected_by_its_own_pace():
    stages = [Stage("a", (10.0,), "training"), *(Stage(f"b{n}", (10.0,), "attacks") for n in range(9))]
    left, now = TimeLeft(stages), 0.0
    for stage, seconds in zip(stages[:4], (10, 40, 40, 40)):
        course = left.begin(stage.label, 1, 0, now)
        now += seconds
        left.reach(course, 1, now)
        left.end(course, now)
    assert left.seconds(now) == pytest.approx(6 * 40, rel=0.1)


def test_a_step_that_takes_too_long_raises_the_time_left_before_it_is_done():
    left = TimeLeft([Stage("a", (10.0,) * 4, "training")])
    left.begin("a", 4, 0, 0.0)
    assert left.seconds(10) == pytest.approx(30)
    assert left.seconds(50) == pytest.approx(3 * 50)


def test_a_long_job_that_runs_beside_short_ones_is_given_its_own_time():
    jobs = (20.0, *(1.0,) * 20)
    left = TimeLeft([Stage("a", tuple(arrivals(jobs, 2)), "attacks")])
    left.begin("a", len(jobs), 0, 0.0)
    assert makespan(jobs, 2) == 20
    assert [left.seconds(now) for now in (5, 15, 20)] == pytest.approx([15, 5, 0])


def test_work_from_before_counts_neither_as_done_fast_nor_as_left():
    stages = [Stage("a", (10.0,) * 10, "training"), Stage("b", (50.0,), "training"), Stage("c", (20.0,), "x")]
    left = TimeLeft(stages)
    course = left.begin("a", 10, 8, 0.0)
    assert left.seconds(0) == pytest.approx(20 + 50 + 20)
    left.reach(course, 9, 30.0)
    assert left.seconds(30) == pytest.approx(3 * (10 + 50 + 20), rel=0.01)
    left.end(course, 30.0)
    left.begin("c", 1, 0, 30.0)  # b was there already, and never began
    assert left.seconds(30) == pytest.approx(3 * 20, rel=0.35)


def test_a_stage_with_fewer_steps_than_planned_takes_so_much_less():
    left = TimeLeft([Stage("shadow models", (10.0,) * 4, "shadow models"), Stage("a", (5.0,), "attacks")])
    left.begin("shadow models", 1, 0, 0.0)
    assert left.seconds(0) == pytest.approx(15)


def test_where_nobody_knows_how_long_steps_take_their_mean_so_far_says_it():
    left = TimeLeft([Stage("study", (1.0,) * 10, "cells")], known=False)
    course = left.begin("study", 10, 0, 0.0)
    assert left.seconds(5) is None
    left.reach(course, 2, 60.0)
    assert left.seconds(60) == pytest.approx(8 * 30)


@given(st.lists(st.floats(0, 20), max_size=12), st.integers(1, 4))
def test_results_come_in_order_and_the_last_when_all_jobs_are_done(jobs, workers):
    waits = arrivals(jobs, workers)
    assert len(waits) == len(jobs)
    assert all(wait >= 0 for wait in waits)
    assert max(sum(jobs) / workers, max(jobs, default=0)) <= sum(waits) + 1e-9 <= sum(jobs) + 2e-9


def test_jobs_wait_for_the_worker_that_is_free_first():
    assert makespan([4, 3, 2, 2], 2) == 6
    assert makespan([4, 3, 2, 2], 1) == 11
    assert makespan([], 3) == 0


@given(st.floats(1, 1e6))
def test_a_duration_in_words_is_as_long_as_it_says(seconds):
    units = {"s": 1, "min": 60, "h": 3600, "days": 86400}
    words = duration(seconds)
    said = sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+) (s|min|h|days)\b", words))
    assert said == pytest.approx(seconds, rel=0.26, abs=0.5)
    assert len(words) <= len("59 min 59 s")


def drawn(screen):
    """What was written to a screen, without the colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())


def spoken(capsys):
    return capsys.readouterr().err.splitlines()


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(capsys):
    clock = Clock()
    progress = Progress(clock=clock)
    progress.expect([Stage("training", (10.0,) * 30, "training")])
    times = []
    with progress.task("training", 30) as task:
        for second in range(1, 301):
            clock.now += 1
            if second % 10 == 0:
                task.advance()
            progress.tick()
            times += [second for _ in spoken(capsys)]
    (last,) = spoken(capsys)
    assert all(later - earlier >= QUIET_FOR for earlier, later in itertools.pairwise(times))
    assert 300 / QUIET_FOR - 2 <= len(times) <= 300 / QUIET_FOR
    assert last == "training: 30 of 30 steps in 300.0 s; 100% done"


def test_such_a_line_has_the_share_the_time_and_what_runs(capsys):
    clock = Clock()
    progress = Progress(clock=clock)
    progress.expect([Stage("training", (60.0,) * 4, "training")])
    with progress.task("training", 4) as task:
        clock.now += 60
        task.advance()
        progress.tick()
        assert spoken(capsys) == ["25% done, about 3 min left: training, 1 of 4"]
        clock.now += 3 * 60


def test_where_nothing_was_planned_such_a_line_says_how_far_the_innermost_task_is(capsys):
    clock = Clock()
    progress = Progress(clock=clock)
    with progress.task("seeds", 2), progress.task("shadow models", 8) as task:
        task.advance()
        clock.now += QUIET_FOR - 1
        progress.tick()
        assert spoken(capsys) == []
        clock.now += 1
        progress.tick()
        progress.tick()
        assert spoken(capsys) == ["shadow models, 1 of 8"]
    capsys.readouterr()
    clock.now += QUIET_FOR
    progress.tick()
    assert spoken(capsys) == []


def test_what_another_process_does_is_looked_at(capsys):
    clock, done = Clock(), 0.0
    progress = Progress(clock=clock)
    progress.expect([Stage("training", (60.0,) * 4, "training")])
    with progress.task("training", 4, look=lambda: done):
        clock.now += 30
        done = 0.5
        progress.tick()
        assert spoken(capsys) == ["12% done, about 3 min 30 s left: training, 0 of 4"]


def test_a_quiet_progress_says_nothing_and_looks_at_nothing(capsys):
    clock = Clock()
    with Progress(quiet=True, clock=clock) as progress:
        progress.expect([Stage("training", (1.0,), "training")])
        with progress.task("training", 1, look=pytest.fail) as task:
            clock.now += 100
            progress.tick()
            task.advance()
        progress.say("a line")
    assert spoken(capsys) == []


def test_a_task_that_fails_is_not_called_done(capsys):
    progress = Progress(clock=Clock())
    with pytest.raises(ZeroDivisionError), progress.task("training", 3):
        raise ZeroDivisionError
    assert spoken(capsys) == []


@pytest.mark.parametrize("width", [80, 120])
def test_bars_keep_their_columns_whatever_the_labels_are(width):
    screen = io.StringIO()
    bars = Bars(screen, width)
    bars.overall(0.34, "59 min")
    long = bars.add("attacks on clipping(norm=1.0)+gaussian-noise(std=0.05)[/x]", 1000, 0)
    bars.reach(long, 1000)
    bars.add("training", 30, 12)
    screen.seek(0)
    screen.truncate()
    bars.overall(0.34, "23 h 55 min")
    bars.refresh()
    rows = [row for row in re.split(r"(?:\x1b\[[0-9;?]*[A-Za-z]|\r|\n)+", drawn(screen)) if row.strip()]
    overall, first, second = rows[-3:]
    assert all(cell_len(row) <= width for row in rows)
    assert "34%" in overall
    assert "23 h 55 min left" in overall
    assert "attacks on clipping(norm=1.0)" in first.replace("\N{HORIZONTAL ELLIPSIS}", ")")
    bars.stop()
    assert first.index("1000/1000") + len("1000/1000") == second.index("12/30") + len("12/30")

"""Progress with time left: bars on a terminal, a plain line now and then elsewhere, nothing if quiet."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from glasshouse.progress.time_left import Course, Stage, TimeLeft, duration

if TYPE_CHECKING:
    from glasshouse.progress.bars import Bars

Item = TypeVar("Item")

TICK = 1.0
"""Seconds between two looks at what runs."""

QUIET_FOR = 20.0
"""Without a terminal a line is written after so many seconds in which none was."""


class Task:
    """Something with a number of steps, `done` of which are done; `course` is its place in the plan."""

    def __init__(self, progress: "Progress", label: str, total: int, done: int, bar: int | None) -> None:
        self.label, self.total, self.done = label, total, float(done)
        self.bar = bar
        self.course: Course | None = None
        self.look: Callable[[], float] | None = None
        self._progress = progress

    def advance(self) -> None:
        """One more step is done."""
        self._progress._reach(self, int(self.done) + 1)


class Progress:
    """A context manager that shows the tasks of a run on standard error, and how long the run still takes.

    `clock` gives the seconds since some moment.
    """

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.quiet = quiet
        self._clock = clock
        self._bars: Bars | None = None
        self._left: TimeLeft | None = None
        self._tasks: list[Task] = []
        self._spoke = clock()
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._ticking: threading.Thread | None = None

    def __enter__(self) -> "Progress":
        if not self.quiet:
            if sys.stderr.isatty():
                from glasshouse.progress.bars import Bars

                self._bars = Bars()
            self._ticking = threading.Thread(target=self._tick_on, daemon=True)
            self._ticking.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._closed.set()
        if self._ticking is not None:
            self._ticking.join()
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def expect(self, stages: Iterable[Stage], *, known: bool = True) -> None:
        """From now on the time that is left is shown: that of the `stages`, corrected by the pace.

        Stages are tasks to come, in their order. If their seconds are not `known`, they are compared alone.
        """
        if not self.quiet:
            with self._lock:
                self._left = TimeLeft(stages, known=known)
                if self._bars is not None:
                    self._bars.overall(0.0, self._spoken_left())

    @contextmanager
    def task(
        self, label: str, total: int, *, done: int = 0, look: Callable[[], float] | None = None
    ) -> Iterator[Task]:
        """Show `label` with `total` steps, `done` of which were done before, until they are all done.

        Where its steps are done elsewhere, a `look` now and then says how many are done, in part or whole.
        """
        began = self._clock()
        with self._lock:
            bar = None if self._bars is None else self._bars.add(label, total, done)
            task = Task(self, label, total, done, bar)
            task.look = None if self.quiet else look
            task.course = None if self._left is None else self._left.begin(label, total, done, began)
            self._tasks.append(task)
        try:
            yield task
        finally:
            with self._lock:
                self._tasks.remove(task)
                if self._left is not None and task.course is not None:
                    self._left.end(task.course, self._clock())
                if self._bars is not None and bar is not None:
                    self._bars.remove(bar)
        if self._bars is None and total > done:
            took = f"{total - done} of {total} steps in {self._clock() - began:.1f} s"
            self.say("; ".join(filter(None, (f"{label}: {took}", self._outlook()))))

    def track(self, items: Iterable[Item], label: str, total: int) -> Iterator[Item]:
        """Yield `items`, one step each."""
        with self.task(label, total) as task:
            for item in items:
                yield item
                task.advance()

    def say(self, line: str) -> None:
        """A line for the user, unless quiet."""
        if self.quiet:
            return
        with self._lock:
            self._spoke = self._clock()
            if self._bars is not None:
                self._bars.say(line)
            else:
                print(line, file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Look at what runs; without a terminal, say how far it is if nothing was said for a while.

        Where nothing was planned, that is how far the innermost task is.
        """
        with self._lock:
            for task in self._tasks:
                if task.look is not None:
                    self._reach(task, task.look())
            outlook = self._outlook()
            if self._bars is not None:
                self._bars.overall(None if self._left is None else self._left.share, self._spoken_left())
            elif self._clock() - self._spoke >= QUIET_FOR:
                inner = [f"{task.label}, {int(task.done)} of {task.total}" for task in self._tasks[-1:]]
                if line := ": ".join(filter(None, (outlook, *inner))):
                    self.say(line)

    def _reach(self, task: Task, steps: float) -> None:
        with self._lock:
            task.done = max(task.done, min(steps, task.total))
            if self._left is not None and task.course is not None:
                self._left.reach(task.course, task.done, self._clock())
            if self._bars is not None and task.bar is not None:
                self._bars.reach(task.bar, task.done)

    def _outlook(self) -> str:
        """How much is done, and how long the rest takes; nothing where that is not known."""
        if self._left is None:
            return ""
        left = self._spoken_left()
        return f"{100 * self._left.share:.0f}% done" + (f", about {left} left" if left else "")

    def _spoken_left(self) -> str:
        seconds = None if self._left is None else self._left.seconds(self._clock())
        return duration(seconds) if seconds is not None and seconds >= 0.5 else ""

    def _tick_on(self) -> None:
        while not self._closed.wait(TICK):
            self.tick()

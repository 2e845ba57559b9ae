"""Progress with time left on a terminal, a plain line for each finished task elsewhere, nothing if quiet."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

Item = TypeVar("Item")


class Task:
    """One bar."""

    def __init__(self, bars: "Bars | None", label: str, total: int, done: int) -> None:
        self._bars = bars
        self._id = bars.add_task(label, total=total, completed=done) if bars is not None else None

    def advance(self) -> None:
        """One more step is done."""
        if self._bars is not None and self._id is not None:
            self._bars.advance(self._id)

    def remove(self) -> None:
        """Take the bar off the screen."""
        if self._bars is not None and self._id is not None:
            self._bars.remove_task(self._id)


class Progress:
    """A context manager that shows the tasks of a run on standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bars: Bars | None = None

    def __enter__(self) -> "Progress":
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bars

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bars = Bars(*columns, console=Console(stderr=True))
            self._bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    @contextmanager
    def task(self, label: str, total: int, *, done: int = 0) -> Iterator[Task]:
        """Show `label` with `total` steps, `done` of which were done before, until they are all done."""
        began = time.monotonic()
        task = Task(self._bars, label, total, done)
        yield task
        task.remove()
        if self._bars is None and total > done:
            self.say(f"{label}: {total - done} of {total} steps in {time.monotonic() - began:.1f} s")

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
        if self._bars is not None:
            self._bars.console.print(line, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

"""Bars on a terminal: one for the whole run, and below it one for each task, in columns that stay put."""

import sys
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

LABEL = 29
"""Columns of the screen for a label; a longer one is cut."""

EVERYTHING = "all"


class Bars:
    """The bars that are on the screen now."""

    def __init__(self, file: TextIO | None = None, width: int | None = None) -> None:
        label = Column(width=LABEL, no_wrap=True, overflow="ellipsis")
        count, left = (Column(width=width, no_wrap=True) for width in (9, 16))
        self._bars = Progress(
            TextColumn("{task.description}", table_column=label, markup=False),
            BarColumn(bar_width=14),
            TextColumn("{task.fields[count]}", justify="right", table_column=count),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", justify="right", table_column=left),
            console=Console(file=file or sys.stderr, width=width, force_terminal=file is not None or None),
        )
        self._overall: TaskID | None = None
        self._bars.start()

    def stop(self) -> None:
        """Take everything off the screen."""
        for bar in self._bars.task_ids:
            self._bars.remove_task(bar)
        self._bars.stop()

    def add(self, label: str, total: int, done: int) -> int:
        """A new bar."""
        return self._bars.add_task(label, total=total, completed=done, count=f"{done}/{total}", left="")

    def reach(self, bar: int, done: float) -> None:
        """So many steps are done."""
        total = self._bars.tasks[self._bars.task_ids.index(TaskID(bar))].total
        self._bars.update(TaskID(bar), completed=done, count=f"{int(done)}/{int(total or 0)}")

    def remove(self, bar: int) -> None:
        """Take a bar off the screen."""
        self._bars.remove_task(TaskID(bar))

    def overall(self, share: float | None, left: str) -> None:
        """How much of everything is done, and how long the rest takes, in words."""
        if share is None:
            return
        if self._overall is None:
            self._overall = self._bars.add_task(EVERYTHING, total=1.0, count="", left="")
        words = f"{left} left" if left else ""
        self._bars.update(self._overall, completed=share, count=f"{100 * share:.0f}%", left=words)

    def refresh(self) -> None:
        """Draw them now."""
        self._bars.refresh()

    def say(self, line: str) -> None:
        """A line above the bars."""
        self._bars.console.print(line, highlight=False, markup=False, soft_wrap=True)

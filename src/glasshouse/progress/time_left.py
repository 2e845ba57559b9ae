"""How much time a run still takes: what was planned, corrected by the pace so far."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TRUSTED = 0.1
"""The share of the whole work from which on the pace so far alone decides."""

PULL = 0.05
"""The share of the whole work that a kind of work must have done to go half by its own pace."""


@dataclass(frozen=True)
class Stage:
    """A task that is to come: its `label`, and how many seconds after the one before each of its steps ends.

    Work of one `kind` tends to be off by the same factor. A label that ends in * stands for all that begin
    so.
    """

    label: str
    seconds: tuple[float, ...]
    kind: str

    @property
    def total(self) -> float:
        """The seconds of all steps."""
        return sum(self.seconds)

    def named(self, label: str) -> bool:
        """Whether `label` is what it is called."""
        return label == self.label or (self.label.endswith("*") and label.startswith(self.label[:-1]))


class Course:
    """A stage that has begun, `first` of its steps done before: how far it is, and since when.

    Where it has fewer steps than were planned, as in a run that goes on, it takes so much less.
    """

    def __init__(self, stage: Stage, total: int, first: int, now: float) -> None:
        planned = stage.seconds
        mean = stage.total / max(1, len(planned))
        self.kind = stage.kind
        self._steps: Sequence[float] = planned if total == len(planned) else (mean,) * total
        self.first = self.reached = float(first)
        self.began = self.last = now
        self.open = True

    @property
    def done(self) -> float:
        """The planned seconds of what was done since it began."""
        return self._upto(self.reached) - self._upto(self.first)

    @property
    def left(self) -> float:
        """The planned seconds of what is not done."""
        return sum(self._steps) - self._upto(self.reached) if self.open else 0.0

    @property
    def running(self) -> float:
        """The planned seconds until the next step ends."""
        return self._upto(int(self.reached) + 1) - self._upto(self.reached) if self.open else 0.0

    def _upto(self, steps: float) -> float:
        whole = int(steps)
        return sum(self._steps[:whole]) + (steps - whole) * sum(self._steps[whole : whole + 1])


class TimeLeft:
    """What is left of the planned `stages`, in seconds.

    A stage counts from when it begins until it ends; those before it that never began had nothing to do, and
    what lies between stages was not planned. If the seconds of the plan are not `known`, they say how stages
    compare and no more: the pace of what is done alone decides.
    """

    def __init__(self, stages: Iterable[Stage], *, known: bool = True) -> None:
        self._waiting = list(stages)
        self._courses: list[Course] = []
        self._known = known

    def begin(self, label: str, total: int, done: int, now: float) -> Course | None:
        """The course of the next stage called `label`; null where none was planned."""
        place = next((k for k, stage in enumerate(self._waiting) if stage.named(label)), None)
        if place is None:
            return None
        course = Course(self._waiting[place], total, done, now)
        del self._waiting[: place + 1]
        self._courses.append(course)
        return course

    def reach(self, course: Course, steps: float, now: float) -> None:
        """So many `steps` of the course are done, those from before included."""
        if steps > course.reached:
            course.reached, course.last = steps, now

    def end(self, course: Course, now: float) -> None:
        """The course is over, however far it came."""
        if course.open:
            course.last, course.open = now, False

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1."""
        done, left = self._done(), self._left()
        return done / (done + left) if done + left else 0.0

    def seconds(self, now: float) -> float | None:
        """How much longer it takes, as it looks `now`; null where nothing tells."""
        done, left = self._done(), self._left()
        if not self._known and not done:
            return None
        pace = self._pace(done, left, now)
        pull = PULL * (done + left)
        seconds = sum(stage.total * self._pace_of(stage.kind, pace, pull, now) for stage in self._waiting)
        for course in self._courses:
            if course.open:
                own = self._pace_of(course.kind, pace, pull, now)
                seconds += course.left * own - min(now - course.last, course.running * own)
        return max(0.0, seconds)

    def _done(self) -> float:
        return sum(course.done for course in self._courses)

    def _left(self) -> float:
        return sum(stage.total for stage in self._waiting) + sum(course.left for course in self._courses)

    def _pace(self, done: float, left: float, now: float) -> float:
        """Seconds for each planned one, over all that was done."""
        running = [course for course in self._courses if course.open]
        spent = sum(course.last - course.began for course in self._courses)
        measured = spent / done if done else 1.0
        trust = min(1.0, done / (TRUSTED * (done + left))) if self._known and done else 1.0
        passed = spent + sum(now - course.last for course in running)
        planned = done + sum(course.running for course in running)
        return max(trust * measured + (1 - trust), passed / planned if planned else 0.0)

    def _pace_of(self, kind: str, overall: float, pull: float, now: float) -> float:
        """That of one kind of work, as far as enough of it was done.

        Steps that run for longer than they should show that the pace is slower, before they are done.
        """
        mine = [course for course in self._courses if course.kind == kind]
        done = sum(course.done for course in mine)
        spent = sum(course.last - course.began for course in mine)
        pace = (spent + pull * overall) / (done + pull) if done + pull else overall
        running = [(now - course.began, course.done + course.running) for course in mine if course.open]
        return max([pace, *(passed / planned for passed, planned in running if planned)])


def arrivals(seconds: Iterable[float], workers: int) -> list[float]:
    """How long after the result before it each comes, of jobs of so many seconds begun in order by `workers`.

    Results come in order too: that of a short job waits for the long one before it.

    >>> arrivals([3, 1, 1, 2], 2)
    [3.0, 0.0, 0.0, 1.0]
    """
    busy, waits, last = [0.0] * max(1, workers), [], 0.0
    for job in seconds:
        free = busy.index(min(busy))
        busy[free] += job
        waits.append(max(0.0, busy[free] - last))
        last = max(last, busy[free])
    return waits


def makespan(seconds: Iterable[float], workers: int) -> float:
    """How long jobs of so many seconds take, begun in their order by `workers`.

    >>> makespan([3, 1, 1, 2], 2)
    4.0
    """
    return sum(arrivals(seconds, workers), 0.0)


def duration(seconds: float) -> str:
    """Some seconds in words, no more exactly than an estimate is.

    >>> [duration(seconds) for seconds in (3.2, 44, 131, 1500, 8000)]
    ['3 s', '45 s', '2 min 10 s', '25 min', '2 h 15 min']
    """
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 57.5:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 295:
        minutes, rest = divmod(10 * round(seconds / 10), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if seconds < 57.5 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 47.5 * 3600:
        hours, rest = divmod(5 * round(seconds / 300), 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{round(seconds / 86400)} days"

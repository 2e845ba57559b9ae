"""A plan in words, in lines that fit a terminal of 80 columns."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from glasshouse.auditing.planning.chores import Planned
from glasshouse.data.split import Split
from glasshouse.progress.time_left import duration
from glasshouse.spelling import listed
from glasshouse.verdicts.measure import by_access

if TYPE_CHECKING:
    from glasshouse.auditing.planning.plan import AuditPlan, Trained

WIDTH = 80
NAME = 44

BUSY = 1.5
"""How much longer than alone work takes on a machine that is called busy."""

MOST_REASONS = 3

KNOWING = "+"


def data_lines(split: Split) -> tuple[str, ...]:
    """Of a finished model: how many images it was trained on, and what there is beside them."""
    members = f"{sum(map(len, split.clients))} members"
    others = [
        f"{len(positions)} {name}"
        for name, positions in (
            ("non-members", split.nonmembers),
            ("auxiliary images", split.auxiliary),
            ("test images", split.test),
        )
        if len(positions)
    ]
    return (f"{listed([members, *others])}",)


def whole(plan: "AuditPlan") -> Iterator[str]:
    """All of a plan."""
    yield from _wrapped(plan.title, first="")
    yield from _under("The data and the network", [line for text in plan.data for line in _wrapped(text)])
    if plan.trained:
        yield from _under(f"{'What is trained':<{NAME}}  models  rounds  clients", map(_row, plan.trained))
    yield from _under("Who attacks", _attackers(plan.running))
    if plan.impossible:
        yield from _under("What cannot run", _reasons(plan.impossible))
    if plan.searched:
        words = (
            f"{plan.searched} defences meet one attack of each adversary and family; then the best pairs "
            "of them do, and the best of all meet every attack. What these are, and so the time they "
            "take, follows from what is found."
        )
        yield from _under("A search", _wrapped(words))
    if plan.seeds > 1:
        yield from _under("How often", [f"  {plan.seeds} times, with seeds of their own"])
    if lines := time_lines(plan):
        yield from _under("How long", lines)


def short(plan: "AuditPlan") -> Iterator[str]:
    """The plan in a few lines, without its time."""
    for line in (plan.title, *plan.data):
        yield from _wrapped(line, first="")
    targets = [row for row in plan.trained if not row.name.startswith("shadow models")]
    shadows = sum(row.models for row in plan.trained) - len(targets)
    models = [f"{len(targets)} model{'s' if len(targets) != 1 else ''}"] if targets else []
    models += [f"{shadows} shadow models"] if shadows else []
    trained = f"trains {listed(models)}; " if models else ""
    kinds = len({planned.assignment.access.adversary for planned in plan.running})
    yield f"{trained}{len(plan.running)} attacks by {kinds} kind{'s' if kinds != 1 else ''} of adversary"
    lines = list(_unwrapped(plan.impossible))
    for line in lines[:MOST_REASONS]:
        yield from _wrapped(f"cannot run: {line}", first="")
    if len(lines) > MOST_REASONS:
        yield f"{len(lines) - MOST_REASONS} more cannot run; `glasshouse audit --plan` says why"


def time_lines(plan: "AuditPlan", first: str = "  ") -> list[str]:
    """How long it takes, and what of it takes how long, or why that cannot be told."""
    seconds = plan.seconds
    if seconds is None:
        return _wrapped(f"how long it takes cannot be told: {plan.untimed}", first) if plan.untimed else []
    workers = f"{seconds.workers} worker{'s' if seconds.workers > 1 else ''}"
    parts = sorted(seconds.by_kind.items(), key=lambda part: -part[1])
    named = ", ".join(f"{kind} {duration(part)}" for kind, part in parts if part >= 0.05 * seconds.total)
    alone = duration(seconds.total / seconds.wait)
    busy = f"; other work slows this machine down, without it about {alone}" if seconds.wait > BUSY else ""
    return _wrapped(f"about {duration(seconds.total)} with {workers} ({named}){busy}", first)


def _under(heading: str, lines: "Sequence[str] | Iterator[str] | map[str]") -> Iterator[str]:
    yield ""
    yield heading
    yield from lines


def _wrapped(text: str, first: str = "  ", indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def _row(row: "Trained") -> str:
    name = row.name if len(row.name) <= NAME - 2 else f"{row.name[: NAME - 3]}\N{HORIZONTAL ELLIPSIS}"
    clients = f"{row.cohort} of {row.clients}" if row.cohort != row.clients else f"{row.clients}"
    return f"  {name:<{NAME - 2}}  {row.models:>6}  {row.rounds:>6}  {clients:>7}"


def _attackers(running: Sequence[Planned]) -> Iterator[str]:
    """The attacks of each adversary, with a mark where somebody who knows the defence runs them, too."""
    forms: dict[str, dict[str, bool]] = {}
    for planned in running:
        name, _, options = planned.assignment.spec.partition("(")
        mine = forms.setdefault(planned.assignment.access.adversary, {})
        mine[name] = mine.get(name, False) or "adaptive=True" in options
    for adversary in by_access(forms):
        marked = ", ".join(f"{name}{KNOWING if knows else ''}" for name, knows in forms[adversary].items())
        yield from _wrapped(f"{adversary}: {marked}", indent="    ")
    if any(knows for mine in forms.values() for knows in mine.values()):
        yield f"  {KNOWING} under a defence once more, by somebody who knows it"


def _name(planned: Planned) -> str:
    """An attack's name, which says so where it knows the defence."""
    name, _, options = planned.assignment.spec.partition("(")
    return f"{name} (adaptive)" if "adaptive=True" in options else name


def _reasons(impossible: Sequence[Planned]) -> Iterator[str]:
    for line in _unwrapped(impossible):
        yield from _wrapped(line, indent="    ")


def _unwrapped(impossible: Sequence[Planned]) -> Iterator[str]:
    """A line for each reason: the attacks that it stops, and as whom they would have run."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for planned in impossible:
        stopped = reasons.setdefault(planned.reason or "", {})
        stopped.setdefault(_name(planned), []).append(planned.assignment.access.adversary)
    for reason, stopped in reasons.items():
        alike: dict[str, list[str]] = {}
        for name, adversaries in stopped.items():
            alike.setdefault(listed(list(dict.fromkeys(adversaries))), []).append(name)
        who = "; ".join(f"{listed(names)} ({adversaries})" for adversaries, names in alike.items())
        yield f"{who}: {reason}"

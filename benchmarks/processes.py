"""CPU time and memory of a process and its descendants, read from Linux's /proc."""

import os
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """CPU time that the process `root` and its living descendants have used, user and system."""
    states = _states()
    return sum(_ticks(states[pid]) for pid in _family(root, states)) / TICKS


def memory(root: int) -> int:
    """Bytes of memory that the process `root` and its descendants hold; what they share counts once."""
    return sum(_proportional_set(pid) for pid in _family(root, _states()))


def _states() -> dict[int, list[str]]:
    """The fields of each process's `stat` after its name: state, parent, ..."""
    states = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            line = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        states[int(folder.name)] = line.rpartition(")")[2].split()
    return states


def _family(root: int, states: dict[int, list[str]]) -> list[int]:
    family = [root] if root in states else []
    for member in family:
        family += [pid for pid, state in states.items() if int(state[1]) == member]
    return family


def _ticks(state: list[str]) -> int:
    user, system = state[11:13]
    return int(user) + int(system)


def _proportional_set(pid: int) -> int:
    try:
        rollup = (PROC / str(pid) / "smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    sizes = [line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")]
    return 1024 * int(sizes[0]) if sizes else 0

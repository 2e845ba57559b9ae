"""Faults at random moments of an audit: the same command, given again, must end with the same numbers.

`python tests/faults.py --points 20` strikes an audit twenty times with each kind of fault and prints a table.
"""

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timeless import timeless_rows

SETTING = """
[data]
clients = 3
members = 45
nonmembers = 30
auxiliary = 60
test = 30
[model]
name = "mlp"
[training]
rounds = 4
batch_size = 15
lr = 0.1
[audit]
attacks = ["loss-threshold", "lira"]
defences = ["clipping(norm=1.0)"]
shadows = 4
observe = 1
central = false
curvature = 0
"""
SIGNALS = {"SIGKILL": (signal.SIGKILL, -9), "SIGTERM": (signal.SIGTERM, 143), "Ctrl-C": (signal.SIGINT, 130)}
KINDS = (*SIGNALS, "killed worker", "full disk")
CONTINUES = "glasshouse: interrupted; the same command continues where it stopped"
PATIENCE = 30
"""Seconds after which a process that is still there counts as left behind."""

ON_A_SMALL_DISK = """
mount -t tmpfs -o size="$1"k none disk || exit 99
shift
mkdir disk/tmp
"$@" 2>struck.err
echo $? >struck.code
ls disk/tmp >struck.left
mount -o remount,size=1g disk
"$@" 2>resumed.err
ls disk/tmp >resumed.left
cp disk/run/results.json results.json
"""
UNSHARED = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


@dataclass
class Outcome:
    """What came of strikes: how long processes of the run were left at most, and what was wrong."""

    worst: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def check(self, holds: bool, complaint: str) -> None:
        if not holds:
            self.wrong.append(complaint)


class Missed(Exception):
    """The run had ended before the fault came."""


class Run:
    """The command in a session of its own, so that its processes can be told from all others."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._errors = (place / "errors").open("w+")
        self.process = subprocess.Popen(
            command("run"),
            cwd=place,
            env={**os.environ, "TMPDIR": "tmp"},
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit code; None if it takes longer than that."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def workers(self) -> list[int]:
        return [pid for pid in alive(self.process.pid) if b"popen_loky" in told(pid, "cmdline")]

    def listens(self) -> bool:
        """Whether the command has begun: before that, a signal ends the bare Python, and nothing is lost."""
        lines = told(self.process.pid, "status").splitlines()
        caught = next((line.split()[1] for line in lines if line.startswith(b"SigCgt:")), b"0")
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def command(out: str) -> list[str]:
    module = [sys.executable, "-m", "glasshouse.cli"]
    return [*module, *("audit", "audit.toml"), *("--out", out), *("--workers", "2"), "-q"]


def alive(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, *numbers = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state != "Z" and int(numbers[2]) == session:
            found.append(int(folder.name))
    return found


def gone_after(session: int) -> float:
    """Seconds until no process of a session was left, or infinity."""
    began = time.monotonic()
    while alive(session):
        if time.monotonic() - began > PATIENCE:
            return float("inf")
        time.sleep(0.05)
    return time.monotonic() - began


def told(pid: int, name: str) -> bytes:
    """What the system tells of a process under `name`; nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def new_place(parent: Path) -> Path:
    place = Path(tempfile.mkdtemp(dir=parent))
    (place / "tmp").mkdir()
    (place / "disk").mkdir()
    (place / "audit.toml").write_text(SETTING)
    return place


def numbers(file: Path) -> list[dict[str, object]]:
    """The findings without the time they took."""
    return timeless_rows(json.loads(file.read_text()))


def left_in(folder: Path) -> set[str]:
    """The temporary folders that are still there."""
    return {path.name for path in folder.glob("glasshouse-*")}


class Striker:
    """Knows an undisturbed run, and compares others with it."""

    def __init__(self, parent: Path, seed: int = 0) -> None:
        self.parent, self.random = parent, random.Random(seed)
        began = time.monotonic()
        whole = Run(new_place(parent))
        assert whole.wait() == 0, whole.errors()
        self.seconds = time.monotonic() - began
        self.numbers = numbers(whole.place / "run" / "results.json")
        files = [path for path in (whole.place / "run").rglob("*") if path.is_file()]
        self.kilobytes = sum(file.stat().st_size for file in files) // 1024

    def strike(self, *kinds: str) -> Outcome:
        """Let faults strike a run one after the other, and then let it end."""
        outcome, place = Outcome(), new_place(self.parent)
        for kind in kinds:
            if kind == "full disk":
                self._fill_disk(place, outcome)
                return outcome
            self._hit(place, kind, outcome)
        last = Run(place)
        outcome.check(last.wait() == 0, f"the run did not end well: {last.errors()}")
        outcome.check(gone_after(last.process.pid) < PATIENCE, "processes were left after the end")
        outcome.check(not left_in(place / "tmp"), "a temporary folder was left after the end")
        self._compare(place / "run" / "results.json", outcome)
        return outcome

    def _hit(self, place: Path, kind: str, outcome: Outcome) -> None:
        of_killed_runs = left_in(place / "tmp")
        run = Run(place)
        if run.wait(self.random.random() * self.seconds) is not None:
            raise Missed
        if kind == "killed worker":
            self._kill_worker(run, outcome)
        else:
            number, expected = SIGNALS[kind]
            while kind != "SIGKILL" and not run.listens():
                if run.wait(0.05) is not None:
                    raise Missed
            (os.killpg if kind == "Ctrl-C" else os.kill)(run.process.pid, number)
            code = run.wait(PATIENCE)
            outcome.check(code == expected, f"{kind} gave exit code {code}")
            outcome.worst = max(outcome.worst, gone_after(run.process.pid))
            if kind != "SIGKILL":
                outcome.check(run.errors().strip() == CONTINUES, f"{kind} said: {run.errors()}")
                left = left_in(place / "tmp") - of_killed_runs  # those go once a run has begun its work
                outcome.check(not left, f"{kind} left a temporary folder")
        outcome.check(outcome.worst < PATIENCE, f"{kind} left processes")
        outcome.check("Traceback" not in run.errors(), f"{kind} gave a traceback: {run.errors()}")

    def _kill_worker(self, run: Run, outcome: Outcome) -> None:
        while not (workers := run.workers()):
            if run.wait(0.05) is not None:
                raise Missed
        os.kill(self.random.choice(workers), signal.SIGKILL)
        outcome.check(run.wait() == 0, f"a killed worker ended the run: {run.errors()}")
        outcome.check(not run.errors(), f"a killed worker said: {run.errors()}")
        outcome.worst = max(outcome.worst, gone_after(run.process.pid))

    def _fill_disk(self, place: Path, outcome: Outcome) -> None:
        size = int(self.kilobytes * self.random.uniform(0.02, 1))
        script = subprocess.Popen(
            [*UNSHARED, ON_A_SMALL_DISK, "sh", str(size), *command("disk/run")],
            cwd=place,
            env={**os.environ, "TMPDIR": "disk/tmp"},
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        script.wait()
        said, code = (place / "struck.err").read_text(), int((place / "struck.code").read_text())
        if code == 0:
            raise Missed
        outcome.check(code == 2, f"a full disk ({size} kB) gave exit code {code}: {said}")
        outcome.check(said.count("\n") == 1, f"a full disk ({size} kB) said: {said}")
        for moment in ("struck", "resumed"):
            left = (place / f"{moment}.left").read_text()
            outcome.check("glasshouse-" not in left, f"{moment}: a temporary folder was left")
        outcome.worst = gone_after(script.pid)
        outcome.check(outcome.worst < PATIENCE, "a full disk left processes")
        self._compare(place / "results.json", outcome)

    def _compare(self, results: Path, outcome: Outcome) -> None:
        outcome.check(results.exists() and numbers(results) == self.numbers, "other numbers after the fault")

    def strikes(self, kind: str, points: int) -> Iterator[Outcome]:
        """`points` strikes that met a run before its end."""
        while points:
            try:
                outcome = self.strike(kind)
            except Missed:
                continue
            points -= 1
            yield outcome


def disk_can_be_filled() -> bool:
    """Whether this machine lets us mount a small disk."""
    mounted = [*UNSHARED, "mount -t tmpfs -o size=100k none /mnt"]
    try:
        return subprocess.run(mounted, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1, help="strikes of each kind")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, metavar="KIND")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    failed = False
    with tempfile.TemporaryDirectory() as parent:
        striker = Striker(Path(parent), options.seed)
        print(f"undisturbed: {striker.seconds:.1f} s, {striker.kilobytes} kB")
        print(f"{'fault':14} {'points':>6} {'identical':>9} {'processes gone after, at most':>30}")
        for kind in options.kinds:
            if kind == "full disk" and not disk_can_be_filled():
                print(f"{kind:14} not tried: this machine mounts no tmpfs for us")
                continue
            outcomes = list(striker.strikes(kind, options.points))
            good = sum(not outcome.wrong for outcome in outcomes)
            worst = max(outcome.worst for outcome in outcomes)
            print(f"{kind:14} {len(outcomes):6} {good:9} {worst:28.1f} s", flush=True)
            complaints = list(itertools.chain(*(outcome.wrong for outcome in outcomes)))
            print(*(f"  {complaint}\n" for complaint in complaints), sep="", end="", flush=True)
            failed = failed or bool(complaints)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

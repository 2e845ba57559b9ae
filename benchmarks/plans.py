"""Compares how long audits were said to take with how long they took, from the command to the page.

Each audit runs once, alone and without a terminal, where a line now and then says how much is done and how
long the rest takes; the first such line after a tenth of the time is compared with what came. The section in
docs/benchmarks.md is rewritten. MNIST has to be prepared (GLASSHOUSE_DATA).
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from page import fill

from glasshouse import Setting, plan
from glasshouse.auditing.setting import EXAMPLE, as_toml
from glasshouse.progress.time_left import duration

MNIST = Setting(
    data={
        "name": "mnist",
        "clients": 5,
        "members": 1500,
        "nonmembers": 1000,
        "auxiliary": 1500,
        "test": 1000,
    },
    model={"name": "lenet"},
    training={"rounds": 20, "batch_size": 32, "lr": 0.05},
    audit={"defences": ["gaussian-noise(std=0.05)"], "shadows": 8},
)
AUDITS = {"the embedded example": EXAMPLE, "LeNet on MNIST, 5 clients of 300 images": MNIST}
UNITS = {"s": 1, "min": 60, "h": 3600}


def audited(setting: Setting, folder: Path) -> tuple[float, list[tuple[float, float]]]:
    """Seconds that an audit takes, and after how many seconds it said how many are left."""
    (folder / "audit.toml").write_text(as_toml(setting))
    words = [sys.executable, "-m", "glasshouse.cli", "audit", "audit.toml", "--out", "run"]
    began = time.monotonic()
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        heard = [(time.monotonic() - began, line) for line in process.stderr]
    assert process.returncode == 0, heard[-1]
    return time.monotonic() - began, list(_outlooks(heard))


def _outlooks(heard: list[tuple[float, str]]) -> Iterator[tuple[float, float]]:
    for passed, line in heard:
        if left := re.search(r"done, about ([\w ]+) left", line):
            parts = re.findall(r"(\d+) (s|min|h)\b", left[1])
            yield passed, sum(int(number) * UNITS[unit] for number, unit in parts)


def report() -> str:
    """The table of what was planned and what came."""
    rows = []
    for name, setting in AUDITS.items():
        planned = plan(setting).seconds
        assert planned is not None
        with tempfile.TemporaryDirectory() as folder:
            took, outlooks = audited(setting, Path(folder))
        passed, left = next(pair for pair in outlooks if pair[0] >= took / 10)
        rest = took - passed
        rows.append(
            f"| {name} | {duration(planned.total)} | {duration(took)} | {planned.total / took:.2f} "
            f"| {duration(left)} of {duration(rest)}, after {100 * passed / took:.0f}% | {left / rest:.2f} |"
        )
    head = "| audit | planned | took | planned over took | time left as said, of what came | said over came |"
    setup = f"**Plans**: one run each, {os.cpu_count()} cores, alone."
    return "\n".join([setup, "", head, "|---|---|---|---|---|---|", *rows])


if __name__ == "__main__":
    fill("plans", report())

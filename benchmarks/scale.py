"""Measures the memory and the disk that an audit of many clients takes, with all its processes.

The images are random and only the sizes matter: an MLP, every client in every round, no defence. One audit
asks the final model alone, the other has an attack that reads every update of the rounds it observes.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from processes import memory

ATTACKS = ("loss-threshold", "label-counts")
OTHERS = {"nonmembers": 200, "auxiliary": 0, "test": 200}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1, help="all of them are observed")
    parser.add_argument("--side", type=int, default=28, help="of an image, in pixels")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--attacks", nargs="*", default=ATTACKS, help="one audit for each")
    given = parser.parse_args()
    print(f"{given.clients:,} clients, {given.rounds} observed rounds, images of {given.side} x {given.side}")
    for attack in given.attacks:
        with tempfile.TemporaryDirectory(prefix="glasshouse-bench-") as folder:
            write_task(Path(folder), given.clients, given.rounds, given.side, attack)
            print(f"{attack}: {audit(Path(folder), given.workers)}", flush=True)


def write_task(folder: Path, clients: int, rounds: int, side: int, attack: str) -> None:
    """Lay down random images, one for each client, and the configuration of an audit."""
    rng = np.random.default_rng(0)
    count = clients + sum(OTHERS.values())
    x = rng.integers(0, 256, (count, side, side, 1), dtype=np.uint8)
    np.savez(folder / "images.npz", x=x, y=rng.integers(0, 10, count))
    parts = "\n".join(f"{name} = {size}" for name, size in OTHERS.items())
    (folder / "audit.toml").write_text(f"""
[data]
name = "{folder / "images.npz"}"
clients = {clients}
partition = "iid"
members = {clients}
{parts}
[model]
name = "mlp"
[training]
rounds = {rounds}
local_test = 0
[audit]
attacks = ["{attack}"]
defences = []
observe = {rounds}
central = false
curvature = 0
shadows = 0
""")


def audit(folder: Path, workers: int) -> str:
    """Run the audit in processes of its own; returns what it took, in words."""
    command = [sys.executable, "-m", "glasshouse.cli", "audit", str(folder / "audit.toml")]
    began = time.perf_counter()
    with (folder / "printed").open("w+") as printed:
        running = subprocess.Popen(
            [*command, "--out", str(folder / "run"), "--workers", str(workers)],
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        peak = peak_disk = 0
        while running.poll() is None:
            peak, peak_disk = max(peak, memory(running.pid)), max(peak_disk, disk(folder / "run"))
            time.sleep(0.2)
        if running.returncode:
            printed.seek(0)
            raise SystemExit(printed.read())
    return (
        f"{peak / 1e9:.2f} GB of memory at its peak, {disk(folder / 'run') / 1e9:.2f} GB of disk, "
        f"{peak_disk / 1e9:.2f} GB at its peak, {time.perf_counter() - began:.0f} s"
    )


def disk(folder: Path) -> int:
    """Bytes of the files under `folder`."""
    sizes = []
    for file in folder.rglob("*"):
        try:
            sizes.append(file.stat().st_size)
        except FileNotFoundError:  # it was replaced meanwhile
            continue
    return sum(sizes)


if __name__ == "__main__":
    main()

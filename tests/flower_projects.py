"""The example's Flower app as a user changes it, run by Flower's own command."""

import shutil
import sys
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES / "flower_deployment"))

from deployment import Deployment  # noqa: E402

PAGE = EXAMPLES.parent / "docs" / "flower.md"
IMPORT, RECORD = (
    line
    for line in PAGE.read_text().partition("## ")[0].splitlines(keepends=True)
    if "record" in line and line.startswith(("from ", "strategy ="))
)
"""The two lines that the documentation shows."""


class Simulation(Deployment):
    """A SuperLink that simulates its SuperNodes."""

    link_options = ("--simulation",)
    run_options = (
        "--federation-config",
        "num-supernodes=3 client-resources-num-cpus=2 init-args-num-cpus=2",
    )


def copied(folder):
    """The app as it is in the examples."""
    return Path(
        shutil.copytree(EXAMPLES / "flower_app", folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    )


def change(app, file, *pairs):
    """Replace pieces of a file of the app, each of which has to be there."""
    path = app / file
    text = path.read_text()
    for before, after in pairs:
        assert text.count(before) == 1, f"{file}: {before!r}"
        text = text.replace(before, after)
    path.write_text(text)


def with_two_lines(app, record, server="server_app", more=""):
    """The server with the two lines that record what it sees."""
    path = app / "digits_app" / f"{server}.py"
    lines = []
    for line in path.read_text().splitlines(keepends=True):
        lines.append(line)
        if line.startswith("from flwr.serverapp import"):
            lines.append(IMPORT)
        if line.startswith("    strategy = FedAvg("):
            lines.append("    " + RECORD.replace('"record"', f'"{record}"').replace("=10)", f"=10{more})"))
    path.write_text("".join(lines))


def images_of(app, folder, names=None, *, of=3):
    """What clients hold and what they do not, as files that `glasshouse audit RECORD` takes.

    `names` are those of the partitions whose images are members; without them, all are, and nobody's.
    """
    sys.path.insert(0, str(app))
    try:
        from digits_app import task

        held = [task.load_data(place, of) for place in names or range(of)]
        others = [part.numpy() for part in task.load_test()]
    finally:
        sys.path.remove(str(app))
    x, y = (np.concatenate([pair[part].numpy() for pair in held]) for part in (0, 1))
    more = {} if names is None else {"client": np.repeat([*names.values()], [len(pair[1]) for pair in held])}
    np.savez(folder / "members.npz", x=x, y=y, **more)
    np.savez(folder / "nonmembers.npz", x=others[0][:300], y=others[1][:300])
    np.savez(folder / "auxiliary.npz", x=others[0][300:], y=others[1][300:])
    return {part: str(folder / f"{part}.npz") for part in ("members", "nonmembers", "auxiliary")}

"""Where the rounds of a record lie."""

import re
from pathlib import Path

ROUND = re.compile(r"\d{4,9}")
"""The name of a round's folder."""


def round_folder(folder: Path, number: int) -> Path:
    """Where a round lies when it is whole."""
    return folder / "rounds" / f"{number:04d}"


def recorded_rounds(folder: Path) -> tuple[int, ...]:
    """The numbers of the rounds in a record, in ascending order."""
    rounds = folder / "rounds"
    if not rounds.is_dir():
        return ()
    return tuple(sorted(int(entry.name) for entry in rounds.iterdir() if ROUND.fullmatch(entry.name)))

"""How long cells of studies took where the pages of the docs were made: on two cores, with nothing beside."""

import csv
from pathlib import Path

FILE = Path(__file__).parent / "seconds.csv"


def usual_seconds(study: str, scale: str) -> dict[str, float]:
    """By cell the mean seconds of a seed; nothing for cells that have not been timed."""
    with FILE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["study"], row["scale"]) == (study, scale)]
    return {row["cell"]: float(row["seconds"]) for row in rows}


def write_usual_seconds(study: str, scale: str, seconds: dict[str, float]) -> None:
    """Keep the seconds of these cells, in place of those from before."""
    with FILE.open(newline="") as file:
        kept = {(row["study"], row["scale"], row["cell"]): row["seconds"] for row in csv.DictReader(file)}
    kept |= {(study, scale, cell): f"{spent:.3g}" for cell, spent in seconds.items()}
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["study", "scale", "cell", "seconds"])
        writer.writerows([*key, spent] for key, spent in sorted(kept.items()))

"""Made-up runs for the tests of the report: rows, folders, and what a page says."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from glasshouse.findings import from_row
from glasshouse.report import write_report
from glasshouse.report.measure import Measure, pooled

DEFENCES = {
    "none": (0.93, 1.0),
    "pruning(fraction=0.5)": (0.925, 0.93),
    "pruning(fraction=0.95)": (0.88, 0.6),
    "gaussian-noise(std=0.01)": (0.915, 0.75),
    "laplacian-noise(scale=0.01)": (0.905, 0.7),
    "clipping(norm=1.0)": (0.9, 0.85),
    "clipping(norm=1.0)+gaussian-noise(std=0.01)": (0.79, 0.08),
}
ATTACKS = [
    (
        "membership",
        "outsider",
        "loss-threshold",
        [("auc", 0.13, 0.5), ("balanced-accuracy", 0.09, 0.5), ("tpr-at-1%-fpr", 0.016, 0.01)],
    ),
    (
        "membership",
        "outsider",
        "gap",
        [("auc", 0.05, 0.5), ("balanced-accuracy", 0.05, 0.5), ("tpr-at-1%-fpr", 0.002, 0.01)],
    ),
    ("evasion", "owner", "fgsm", [("robust-accuracy", -0.6, 0.9), ("clean-accuracy", 0.02, 0.9)]),
    ("labels", "curious server", "label-counts", [("label-overlap", 0.28, 0.62), ("exact-counts", 0.4, 0.0)]),
    ("labels", "blind server", "label-counts", [("label-overlap", 0.06, 0.9), ("exact-counts", 0.0, 0.0)]),
    (
        "labels",
        "crafting server",
        "saturated-head",
        [("label-overlap", 0.37, 0.62), ("exact-counts", 0.9, 0.0)],
    ),
]


def a_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "source": "audit",
        "cell": "digits/lenet/fedavg",
        "family": "membership",
        "adversary": "outsider",
        "attack": "loss-threshold",
        "defence": "none",
        "strategy": "fedavg",
        "data": "digits",
        "model": "lenet",
        "metric": "auc",
        "value": 0.57,
        "low": 0.53,
        "high": 0.61,
        "chance": 0.5,
        "n": 720,
        "seed": 0,
        "assumes": [],
        "printed": None,
        "seconds": 0.4,
    }
    return row | changes


def audit_rows() -> list[dict[str, Any]]:
    rows = [
        a_row(
            family="utility",
            adversary=None,
            attack=None,
            strategy="central",
            metric="test-accuracy",
            value=0.961,
            low=0.94,
            high=0.976,
            chance=0.1,
            n=360,
        )
    ]
    for defence, (accuracy, rest) in DEFENCES.items():
        half = 1.96 * (accuracy * (1 - accuracy) / 360) ** 0.5
        rows.append(
            a_row(
                family="utility",
                adversary=None,
                attack=None,
                defence=defence,
                metric="test-accuracy",
                value=accuracy,
                low=accuracy - half,
                high=accuracy + half,
                chance=0.1,
                n=360,
            )
        )
        for family, adversary, attack, metrics in ATTACKS:
            for metric, gain, chance in metrics:
                value = min(1.0, max(0.0, chance + gain * rest))
                n = 10 if family == "labels" else 720
                wide = 0.03 if metric != "tpr-at-1%-fpr" else 0.009
                known = ["the class of each record"] if attack == "loss-threshold" else []
                known += ["20 labelled images of each class"] if attack == "saturated-head" else []
                rows.append(
                    a_row(
                        family=family,
                        adversary=adversary,
                        attack=attack,
                        defence=defence,
                        metric=metric,
                        value=round(value, 4),
                        low=max(0.0, round(value - wide, 4)),
                        high=min(1.0, round(value + wide, 4)),
                        chance=chance,
                        n=n,
                        assumes=known,
                    )
                )
    return rows


def a_run(folder: Path, rows: list[dict[str, Any]] | None = None, *, full: bool = True) -> Path:
    """A realistic run folder; `full` adds everything that may be absent."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(audit_rows() if rows is None else rows))
    if not full:
        return folder
    rng = np.random.default_rng(0)
    training, roc = [], []
    for defence, (accuracy, rest) in DEFENCES.items():
        for number in range(1, 21):
            level = accuracy * (1 - np.exp(-number / 4)) + rng.normal(0, 0.006)
            training.append(
                {
                    "cell": "digits/lenet/fedavg",
                    "defence": defence,
                    "strategy": "fedavg",
                    "round": number,
                    "acc_global": level,
                    "acc_local": min(1.0, level + 0.03),
                }
            )
        for attack, shift in (("loss-threshold", 0.5), ("gap", 0.2)):
            members, others = rng.normal(shift * rest, 1, 360), rng.normal(0, 1, 360)
            cuts = np.sort(others)[::-1]
            fpr = np.arange(1, 361) / 360
            tpr = [(members >= cut).mean() for cut in cuts]
            roc.append(
                {
                    "cell": "digits/lenet/fedavg",
                    "attack": attack,
                    "defence": defence,
                    "fpr": [0.0, *fpr],
                    "tpr": [0.0, *tpr],
                    "members": 360,
                    "nonmembers": 360,
                }
            )
    (folder / "gallery").mkdir(exist_ok=True)
    gallery = []
    for index in range(4):
        image = np.zeros((8, 8)) + 40
        image[1:7, 2 + index // 2 : 4 + index // 2] = 220
        image[1 + index : 3 + index, 1:7] = 200
        changed = np.clip(image + rng.choice([-30, 30], (8, 8)), 0, 255)
        Image.fromarray(image.astype(np.uint8)).save(folder / "gallery" / f"{index}.png")
        Image.fromarray(changed.astype(np.uint8)).save(folder / "gallery" / f"{index}-made.png")
        gallery.append(
            {
                "cell": "digits/lenet/fedavg",
                "attack": "fgsm",
                "defence": "none",
                "caption": f"a {index}, taken for a {index + 3}",
                "original": f"gallery/{index}.png",
                "result": f"gallery/{index}-made.png",
                "note": "eps 0.1",
            }
        )
    curves = {"training": training, "roc": roc, "gallery": gallery}
    (folder / "curves.json").write_text(json.dumps(curves))
    (folder / "config.toml").write_text('seed = 0\n\n[federation]\nclients = 10\nstrategy = "fedavg"\n')
    (folder / "environment.json").write_text(json.dumps({"python": "3.11.2", "torch": "2.13.0"}))
    return folder


def page_of(folder: Path, *rows: dict[str, Any]) -> str:
    """The text of a page made from these rows alone, without its markup."""
    return text_of(write_report(a_run(folder, list(rows), full=False)).read_text())


def text_of(page: str) -> str:
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)))


def measured(**changes: Any) -> Measure:
    return pooled([from_row(a_row(**changes))])[0]


class Balanced(HTMLParser):
    """Checks that every element that is opened is closed, in order."""

    VOID: ClassVar = {"meta", "link", "img", "input", "br"}

    def check(self, page: str) -> None:
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

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
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.pooling import pooled

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
        "reason": None,
        "note": None,
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
                    "down": 91_500,
                    "up": 87_360,
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


def many_rows(defences: int = 25) -> list[dict[str, Any]]:
    """An audit of many defences, of which some keep attacks from being tried, with what they cost."""
    rows = []
    for place in range(defences):
        defence = f"gaussian-noise(std={place / 100})+clipping(norm=1.0)" if place else "none"
        there = {"defence": defence}
        cost = there | {"family": "utility", "adversary": None, "attack": None, "chance": None}
        accuracy = 0.95 - place * place / 1500
        ends = {"low": accuracy - 0.02, "high": accuracy + 0.02}
        rows.append(a_row(**cost, metric="test-accuracy", value=accuracy, **ends))
        rows.append(a_row(**cost, metric="bytes-up", value=39_400.0, low=None, high=None))
        rows.append(a_row(**cost, metric="training-seconds", value=9.5 + place, low=None, high=None))
        for family, adversary, attack, metrics in ATTACKS:
            for metric, gain, chance in metrics:
                value = min(1.0, max(0.0, chance + gain * (1 - place / defences)))
                ends = {"low": max(0.0, value - 0.03), "high": min(1.0, value + 0.03), "chance": chance}
                named = {"family": family, "adversary": adversary, "attack": attack, "metric": metric}
                rows.append(a_row(**there, **named, value=value, **ends))
        missing = {"family": "reconstruction", "adversary": "blind crafting server", "attack": "mandrake"}
        missing |= {"metric": "not-applicable", "value": None, "low": None, "high": None, "chance": None}
        rows.append(a_row(**there, **missing, reason="the optimiser is Adam, and it inverts plain SGD"))
    return rows


CROWD = {
    "lira": 0.24,
    "rmia": 0.22,
    "attack-p": 0.15,
    "loss-threshold": 0.13,
    "entropy": 0.1,
    "modified-entropy": 0.11,
    "gap": 0.05,
    "label-only": 0.02,
}


def crowded_rows() -> list[dict[str, Any]]:
    """Eight membership attacks by each of two adversaries, with details, and a bound on epsilon."""
    rows = [row for row in audit_rows() if row["family"] != "membership"]
    for adversary, access in (("outsider", 1.0), ("curious server", 1.3)):
        for attack, gain in CROWD.items():
            for defence, (_, rest) in list(DEFENCES.items())[:4]:
                level = gain * rest * access
                there = {"adversary": adversary, "attack": attack, "defence": defence}
                there["assumes"] = ["64 shadow models"] if attack in ("lira", "rmia") else []
                for metric, value, chance in (
                    ("auc", 0.5 + level, 0.5),
                    ("balanced-accuracy", 0.5 + 0.7 * level, 0.5),
                    ("advantage", 1.4 * level, 0.0),
                    ("tpr-at-1%-fpr", 0.01 + level / 3, 0.011),
                    ("accuracy-at-5:1", 0.83 + level / 4, 5 / 6),
                ):
                    ends = {"low": value - 0.03, "high": value + 0.03, "chance": chance}
                    rows.append(a_row(**there, metric=metric, value=value, **ends))
                few = "700 non-members cannot resolve a rate of 0.001"
                missing = {"value": None, "low": None, "high": None, "reason": few}
                rows.append(a_row(**there | missing, metric="tpr-at-0.1%-fpr", chance=0.001))
    held = {"family": "source", "adversary": "curious server", "attack": "source-inference"}
    rows.append(a_row(**held, metric="source-accuracy", value=0.31, low=0.27, high=0.35, chance=0.14))
    rows.append(
        a_row(attack="attack-with-a-name-as-long-as(its=0.5, options=True)", value=0.51, low=0.48, high=0.54)
    )
    canaries = {"adversary": "owner", "attack": "canaries", "metric": "epsilon"}
    rows.append(a_row(**canaries, value=1.7, low=1.7, high=None, chance=0.0))
    return rows


def risk_rows(clients: int = 10, rounds: int = 20) -> list[dict[str, Any]]:
    """Risk of each client to two adversaries, and of each round to one of them."""
    rng = np.random.default_rng(1)
    rows = []
    for adversary, attack, level in (
        ("outsider", "loss-threshold", 0.55),
        ("outsider", "lira", 0.6),
        ("curious server", "lira", 0.62),
    ):
        there = {"defence": "none", "attack": attack, "adversary": adversary, "chance": 0.5, "n": 460}
        for index, value in enumerate(rng.normal(level, 0.05, clients)):
            ends = {"low": value - 0.06, "high": value + 0.06}
            rows.append({**there, "kind": "client", "index": index, "value": value, **ends})
        for index in range(rounds if adversary == "curious server" else 0):
            value = 0.5 + 0.15 * (1 - np.exp(-index / 5)) + rng.normal(0, 0.01)
            ends = {"low": value - 0.04, "high": value + 0.04}
            rows.append({**there, "kind": "round", "index": index, "value": value, **ends})
    return rows


def a_crowded_run(folder: Path, clients: int = 10) -> Path:
    """A run with many attacks and risks, as a full audit leaves."""
    a_run(folder, crowded_rows())
    curves = json.loads((folder / "curves.json").read_text())
    rng = np.random.default_rng(2)
    curves["roc"] = []
    for adversary, access in (("outsider", 1.0), ("curious server", 1.3)):
        for attack, gain in CROWD.items():
            for defence, (_, rest) in list(DEFENCES.items())[:4]:
                members = rng.normal(3.5 * gain * rest * access, 1, 700)
                cuts = np.sort(rng.normal(0, 1, 700))[::-1]
                fpr, tpr = np.arange(701) / 700, [0.0, *((members >= cut).mean() for cut in cuts)]
                if attack == "label-only":
                    fpr, tpr = [0.0, 0.4, 1.0], [0.0, 0.4 + gain, 1.0]
                which = {"adversary": adversary, "attack": attack, "defence": defence}
                counts = {"members": 700, "nonmembers": 700}
                curves["roc"].append({**which, "fpr": list(fpr), "tpr": list(tpr), **counts})
    curves["risk"] = risk_rows(clients)
    (folder / "curves.json").write_text(json.dumps(curves))
    return folder


REBUILDERS = {
    "scale-mia": (0.94, 31.2, 0.92, 212.4, ["rows 1 to 511 of layer fc1 are equal"]),
    "robbing-the-fed": (0.61, 63.0, 0.64, 3.1, ["a layer was put before the network", "its biases climb"]),
    "loki": (0.0, None, 0.05, 2.2, []),
}


def reconstruction_rows() -> list[dict[str, Any]]:
    """Three crafted models under three defences, what they rebuild, and what vetting would have said."""
    rows = [row for row in audit_rows() if row["family"] != "evasion"]
    for defence, (_, rest) in [*list(DEFENCES.items())[:4], list(DEFENCES.items())[-1]]:
        for attack, (rate, sharp, likeness, prepared, signs) in REBUILDERS.items():
            given = ["300 auxiliary images from the same distribution, with labels", "the sum, masked"]
            there = a_row(
                family="reconstruction",
                adversary="blind crafting server",
                attack=attack,
                defence=defence,
                assumes=given,
                n=256,
            )
            level = rate * rest**3
            none = {"low": None, "high": None, "chance": None}
            ends = {"low": max(0.0, level - 0.03), "high": min(1.0, level + 0.02)}
            rows.append(there | {"metric": "recovery-rate", "value": level, **ends, "chance": 0.031})
            rows[-1]["note"] = None if rate else "every client refused the model"
            mean = 10 + 22 * level
            ends = {"low": mean - 0.7, "high": mean + 0.7, "chance": 13.4}
            rows.append(there | {"metric": "psnr", "value": mean, **ends})
            rows.append(
                there | {"metric": "psnr-of-recovered", "value": sharp, "n": int(256 * level), **none}
            )
            if sharp is not None:
                rows[-1] |= {"low": sharp - 0.4, "high": sharp + 0.4}
            else:
                rows[-1]["reason"] = "no image reached 18 dB"
            rows.append(
                there | {"metric": "ssim", "value": likeness, "low": 0.0, "high": 0.95, "chance": 0.21}
            )
            nearest = {"metric": "most-exposed-psnr", "value": mean + 9, **none, "chance": 19.8}
            rows.append(there | nearest)
            for guess, share, decibels in (("mean-image", 0.004, 12.8), ("single-guess", 0.0, 10.1)):
                ends = {"low": 0.0, "high": share + 0.02, "chance": None}
                rows.append(there | {"metric": f"{guess}-recovery-rate", "value": share, **ends})
                ends = {"low": decibels - 0.3, "high": decibels + 0.3, "chance": None}
                rows.append(there | {"metric": f"{guess}-psnr", "value": decibels, **ends})
            rows.append(there | {"metric": "offline-seconds", "value": prepared, **none})
            rows.append(there | {"metric": "online-seconds", "value": 0.041, **none})
            vetted = {"family": "vetting", "metric": "vet-alarm", "value": float(bool(signs)), **none}
            rows.append(there | vetted | {"n": 1, "assumes": [], "note": "; ".join(signs) or None})
    return rows


def course_rows() -> list[dict[str, Any]]:
    """An inversion that comes nearer step by step, and stops short under a defence."""
    rows = []
    for defence, reached in (("none", 24.0), ("gaussian-noise(std=0.01)", 13.5)):
        there = {"adversary": "curious server", "attack": "inverting-gradients", "defence": defence}
        for step in range(0, 2401, 200):
            psnr = 9.5 + (reached - 9.5) * (1 - float(np.exp(-step / 600)))
            guesses = {"chance": 16.2, "mean_image": 12.8, "updates": 4, "n": 32}
            course = {"step": step, "seconds": step / 50, "psnr": psnr, "objective": 1 / (1 + step)}
            rows.append({**there, **course, **guesses})
    return rows


def a_rebuilt_run(folder: Path) -> Path:
    """A run in which a server rebuilt images, with a gallery of the best, the median and the worst."""
    a_run(folder, reconstruction_rows())
    curves = json.loads((folder / "curves.json").read_text())
    rng = np.random.default_rng(4)
    down, across = np.mgrid[0:96, 0:96] / 96
    there = {"adversary": "blind crafting server", "attack": "scale-mia", "defence": "none"}
    for index, (level, rank) in enumerate(
        [
            (34.1, "best"),
            (33.9, "best"),
            (33.6, "best"),
            (31.3, "median"),
            (31.2, "median"),
            (31.2, "median"),
            (14.0, "worst"),
            (12.2, "worst"),
            (9.8, "worst"),
        ]
    ):
        waves = [np.sin(down * rng.uniform(2, 9) + across * rng.uniform(2, 9) + k) for k in range(3)]
        original = 0.5 + 0.4 * np.stack(waves, 2) * (np.hypot(down - 0.5, across - 0.5) < 0.4)[..., None]
        made = original + rng.normal(0, 10 ** (-level / 20), original.shape)
        paths = {key: f"gallery/rebuilt-{index}-{key}.png" for key in ("original", "result")}
        for path, image in zip(paths.values(), (original, made)):
            Image.fromarray((np.clip(image, 0, 1) * 255).astype(np.uint8)).save(folder / path)
        note = "recovered: 18 dB or more" if level >= 18 else "not recovered: below 18 dB"
        curves["gallery"].append({**there, "caption": f"{level} dB, {rank}", "note": note, **paths})
    curves["course"] = course_rows()
    (folder / "curves.json").write_text(json.dumps(curves))
    return folder


LIMITS = (0.0, 0.05, 0.1, 0.2)
EVASIONS = {
    f"{name}(eps={LIMITS[1:]})": reach for name, reach in (("fgsm", 0.5), ("pgd", 0.8), ("strongest", 1.0))
}
ROBUST = (
    ("central", "none", 1.4),
    ("fedavg", "none", 1.0),
    ("fedavg", "pruning(fraction=0.5)", 0.9),
    ("fedavg", "clipping(norm=1.0)", 1.2),
)


def left_right(attack: str, eps: float, rest: float) -> float:
    """The accuracy that an attack leaves a model which is `rest` times as robust as the undefended one."""
    return 0.95 * float(np.exp(-12 * EVASIONS[attack] * eps / rest))


def robustness_rows() -> list[dict[str, Any]]:
    """Three evasion attacks on the central model, the undefended one and those under two defences."""
    rows = [row for row in audit_rows() if row["family"] != "evasion"]
    for strategy, defence, rest in ROBUST:
        there = a_row(family="evasion", adversary="owner", strategy=strategy, defence=defence, n=297)
        for attack in EVASIONS:
            there |= {"attack": attack}
            for metric, eps in (("robust-accuracy", LIMITS[-1]), ("clean-accuracy", 0.0)):
                value, central = (left_right(attack, eps, model) for model in (rest, ROBUST[0][2]))
                ends = {"low": max(0.0, value - 0.05), "high": min(1.0, value + 0.05)}
                ends["chance"] = 0.93 if eps else None
                rows.append(there | {"metric": metric, "value": value, **ends})
                if strategy != "central":
                    apart = value - central
                    ends = {"low": apart - 0.04, "high": apart + 0.04, "chance": None}
                    rows.append(there | {"metric": f"{metric}-over-central", "value": apart, **ends})
        sharp = there | {"family": "curvature", "adversary": None, "attack": None, "metric": "top-eigenvalue"}
        ends = {"low": 18 / rest, "high": 22 / rest, "chance": None, "n": 400}
        rows.append(sharp | {"value": 20 / rest, **ends})
    return rows


def robustness_points() -> list[dict[str, Any]]:
    """The curves that belong to `robustness_rows`."""
    points = []
    for strategy, defence, rest in ROBUST:
        for attack in EVASIONS:
            there = {"strategy": strategy, "defence": defence, "attack": attack, "adversary": "owner"}
            for eps in LIMITS:
                value = left_right(attack, eps, rest)
                ends = {"low": max(0.0, value - 0.05), "high": min(1.0, value + 0.05)}
                there |= {"norm": "linf", "eps": eps, "chance": 0.95 - eps / 4, "n": 297}
                apart = value - left_right(attack, eps, ROBUST[0][2])
                if strategy != "central":
                    ends |= {
                        "difference": apart,
                        "difference_low": apart - 0.04,
                        "difference_high": apart + 0.04,
                    }
                points.append({**there, "value": value, **ends})
    return points


def a_robust_run(folder: Path) -> Path:
    """A run that compares a federated model with a central one."""
    a_run(folder, robustness_rows())
    curves = json.loads((folder / "curves.json").read_text())
    (folder / "curves.json").write_text(json.dumps(curves | {"robustness": robustness_points()}))
    return folder


def a_chart(**changes: Any) -> dict[str, Any]:
    """A chart of four batch sizes and eight series, half of them printed."""
    series = []
    for rank, mode in enumerate(("central", "fedsgd", "fedavg", "fedavg, 5 epochs")):
        values = [0.85 - 0.06 * rank - 0.03 * step for step in range(4)]
        ends = {"low": [v - 0.02 for v in values], "high": [v + 0.02 for v in values]}
        series.append({"name": f"{mode}, measured", "values": values, **ends, "printed": False})
        paper = [v + 0.015 for v in values[:3]] + [None]
        none = [None] * 4
        series.append(
            {"name": f"{mode}, printed", "values": paper, "low": none, "high": none, "printed": True}
        )
    chart = {
        "name": "auc-by-batch",
        "title": "AUC by batch size",
        "kind": "lines",
        "x": "batch size",
        "y": "AUC",
        "categories": ["16", "32", "64", "128"],
        "chance": 0.5,
        "log_y": False,
        "series": series,
        "note": "Means over two seeds.",
    }
    return chart | changes


def a_table(**changes: Any) -> dict[str, Any]:
    """A table in the paper's own layout."""
    table = {
        "name": "table-1",
        "title": "Table I: printed / measured",
        "columns": ["training", "batch 16", "batch 32", "clients"],
        "rows": [
            ["central", "0.833 / 0.712 [0.69, 0.73]", None, 1],
            ["fedavg", "0.801 / 0.7", "0.79 / 0.68", 10],
        ],
        "note": "Brackets hold the 95% interval.",
    }
    return table | changes


def a_study(folder: Path, cells: int = 45, **study: Any) -> Path:
    """A study's run with this many printed numbers; `study` is added to its study.json."""
    rows = [
        a_row(source="mia-bad", cell=f"table-4/cell-{index}", printed=0.58 + index / 1000)
        for index in range(cells)
    ]
    a_run(folder, rows, full=False)
    told = {"title": "A study", "summary": "A summary.", "verdicts": []}
    (folder / "study.json").write_text(json.dumps(told | study))
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

"""What the replication of automatic transformation search prints, and two numbers of the original.

PSNRs are in dB, against the transformed image, over six images; accuracies in percent. Table 1b, Table 1d and
the hybrid of Table 1c cannot be read from the text, and Table 4b has no accuracies there.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from glasshouse.defences.policies.published import PUBLISHED

NONE, RANDOM, HYBRID = "none", "random", "hybrid"
"""Arms of a comparison: without a policy, with the papers' random one, with both searched ones in turn."""

PAPERS = "adam-cosine"
"""The attack of every table but Table 2."""

RESNET = "resnet20-4"
ORIGINAL = {"resnet20": RESNET, "convnet-16": "convnet"}
"""The papers' network that a narrow one stands for."""

PEARSON, REPLICATED_PEARSON = 0.697, 0.123
"""Of S_pri and PSNR, in the original and in its replication."""

BEST_FIVE = (3, 15, 26, 18, 1)
"""Claim 6: horizontal shifting (9), brightness (9), brightness (6), contrast (7) and contrast (6)."""

OVERLAPS = {"cifar100": 4, "tiny-imagenet-20": 3}
"""How many of the five the replication found among its own best five; it had 200 classes of Tiny-ImageNet."""


@dataclass(frozen=True)
class Printed:
    """Mean and standard deviation of the PSNR over images, and the accuracy where one is printed."""

    psnr: float
    spread: float
    accuracy: float | None = None


def _parsed(text: str) -> dict[str, Printed]:
    """Lines of a label and two or three numbers."""
    lines = (line.split() for line in text.strip().splitlines())
    return {label: Printed(*map(float, numbers)) for label, *numbers in lines}


TABLES: dict[tuple[str, str, str], dict[str, Printed]] = {
    ("table-1", "cifar100", "resnet20-4"): _parsed("""
        none      12.15  2.06  78.11
        random     9.92  1.93  75.02
        3-1-7      6.77  0.88  71.59
        43-18-18   9.34  1.81  77.16
        hybrid     8.25  1.64  77.47
    """),
    ("table-1", "fashion-mnist", "resnet20-4"): _parsed("""
        none       9.81  4.41  95.19
        random    10.06  2.04  95.19
        19-15-45   8.26  0.37  92.44
        2-43-21    8.93  2.93  93.93
    """),
    ("table-3", "cifar100", "resnet20-4"): _parsed("""
        none      15.39  2.78
        3-1-7      8.47  0.85
        43-18-18  10.97  1.06
        hybrid     8.95  0.90
    """),
    ("table-4", "fashion-mnist", "resnet20-4"): _parsed("""
        none       9.81  4.41  95.19
        3-1-7      9.30  2.72  93.20
        43-18-18  10.03  2.23  94.88
        hybrid     7.49  1.57  94.49
    """),
    ("table-4", "fashion-mnist", "convnet"): _parsed("""
        none       9.52  3.27
        21-13-3    9.99  2.12
        7-4-15     9.34  1.62
        hybrid    11.50  5.80
    """),
    ("table-5", "tiny-imagenet-20", "resnet20-4"): _parsed("""
        none       8.96  1.25  61.44
        hybrid     7.92  0.79  57.38
    """),
    ("table-6", "cifar100", "resnet20-4"): _parsed("""
        pruning-70       11.62  2.18  74.61
        pruning-95       10.41  1.32  67.91
        pruning-99        9.96  0.57  53.43
        laplacian-0.001  10.73  1.02  71.45
        laplacian-0.01   12.03  0.79  26.20
        gaussian-0.001   12.11  2.98  72.89
        gaussian-0.01    12.13  1.14  36.25
    """),
}
"""By table, data set and network; the replication's ImageNet is all 200 classes, ours 20 of them."""

TABLE_2 = {
    NONE: _parsed("""
        lbfgs-l2      8.61  1.22
        adam-cosine  12.15  2.06
        lbfgs-cosine  9.62  0.91
        adam-l1       9.48  0.71
        adam-l2       9.28  0.69
        sgd-cosine   12.60  2.07
    """),
    HYBRID: _parsed("""
        lbfgs-l2      6.33  2.00
        adam-cosine   8.25  1.64
        lbfgs-cosine  7.47  0.25
        adam-l1       6.43  0.16
        adam-l2       6.46  0.21
        sgd-cosine    8.03  1.47
    """),
}
"""By arm and attack, on CIFAR-100 with ResNet20."""


def printed(table: str, data: str, model: str, arm: str) -> Printed | None:
    """The numbers of one arm in one table; null where none is printed, or none can be read."""
    return TABLES.get((table, data, ORIGINAL.get(model, model)), {}).get(arm)


def printed_accuracy(tables: Iterable[str], data: str, model: str, arm: str) -> float | None:
    """The test accuracy, in [0, 1], of a model trained under one arm of some tables."""
    known = [row for table in tables if (row := printed(table, data, model, arm)) is not None]
    percent = next((row.accuracy for row in known if row.accuracy is not None), None)
    return None if percent is None else percent / 100


def of_attack(table: str, data: str, model: str, arm: str, attack: str) -> Printed | None:
    """What one attack, by its name without options, reached; all tables but the second have one attack."""
    if table == "table-2":
        return table_2(data, model, arm, attack)
    return printed(table, data, model, arm) if attack == PAPERS else None


def table_2(data: str, model: str, arm: str, attack: str) -> Printed | None:
    """The numbers of one attack, by its name without options."""
    if (data, ORIGINAL.get(model, model)) != ("cifar100", "resnet20-4"):
        return None
    return TABLE_2.get(arm, {}).get(attack)


def beside(table: str, data: str, model: str, arm: str, attack: str) -> tuple[Printed, bool] | None:
    """What the papers print, and whether for this network: else it is for their ResNet20."""
    for network in (model, RESNET):
        known = of_attack(table, data, network, arm, attack)
        if known is not None:
            return known, network == model
    return None


def undefended_accuracy(data: str) -> float | None:
    """The highest test accuracy, in [0, 1], that is printed for a data set without a defence."""
    rows = [rows[NONE].accuracy for (_, named, _), rows in TABLES.items() if named == data and NONE in rows]
    return max((percent / 100 for percent in rows if percent is not None), default=None)


def searched(data: str, model: str) -> tuple[str, ...]:
    """The policies that the original found for a data set and a network."""
    wide = ORIGINAL.get(model, model)
    return tuple(found.policy for found in PUBLISHED if (found.data, found.model) == (data, wide))


RANDOM_POLICY = next(found.policy for found in PUBLISHED if found.data is None)

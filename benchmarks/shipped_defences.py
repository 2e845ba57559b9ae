"""Audits the defences that NVIDIA FLARE and Flower ship, and fills the tables of docs/shipped-defences.md.

`flare`, `flower` and `own` measure, each in an environment that has the framework (`own`: neither), and keep
their runs under runs/shipped; what is there is not measured again. `page` then writes the tables.
"""

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path

import page as pages

from glasshouse import Setting, audit
from glasshouse.findings import Finding
from glasshouse.verdicts.contradictions import contradictions
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.pooling import pooled

ROUNDS, SEEDS, CANARIES = 30, 3, 400
RUNS = Path(__file__).parent.parent / "runs" / "shipped"
FLARE, FLOWER = "glasshouse.integrations.flare.shipped", "glasshouse.integrations.flower.shipped"
ATTACKS = ("loss-threshold", "label-counts", "strongest-inversion", "mandrake")
UPDATES, SUMS = f"canary-updates(canaries={CANARIES})", f"canary-clients(canaries={CANARIES})"
FIXED = f"{FLOWER}:DifferentialPrivacyServerSideFixedClipping"
ADAPTIVE = f"{FLOWER}:DifferentialPrivacyServerSideAdaptiveClipping"


@dataclass(frozen=True)
class Group:
    """Defences that are audited together, with the canaries that test their promises."""

    framework: str
    defences: tuple[str, ...]
    canaries: tuple[str, ...] = ()
    strategy: str = "fedavg"


GROUPS = {
    "flare": Group(
        "flare",
        (
            f"{FLARE}:PercentilePrivacy",
            f"{FLARE}:PercentilePrivacy(percentile=95)",
            f"{FLARE}:SVTPrivacy",
            f"{FLARE}:SVTPrivacy(promised='epsilon')",
            f"{FLARE}:SVTPrivacy(fraction=0.9,epsilon=21,noise_var=2.0,gamma=1e-4)",
            f"{FLARE}:SVTPrivacy(fraction=0.9,epsilon=21,noise_var=2.0,gamma=0.03)",
        ),
        (UPDATES,),
    ),
    "flower-local": Group(
        "flower",
        (
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=1e-4,epsilon=10.0,delta=1e-5)",
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=1e-4,epsilon=0.5,delta=1e-5)",
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=2.0,epsilon=0.5,delta=1e-5)",
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=2.0,epsilon=100.0,delta=1e-5)",
        ),
        (UPDATES,),
    ),
    "flower-central": Group(
        "flower",
        (
            f"{FIXED}(noise_multiplier=1.0,clipping_norm=1.0)",
            f"{FIXED}(noise_multiplier=0.2,clipping_norm=1.0)",
        ),
        (SUMS,),
    ),
    "flower-adaptive": Group("flower", (), strategy=f"{ADAPTIVE}(noise_multiplier=0.2)"),
    "own": Group(
        "own",
        (
            "differential-privacy(norm=1.0,noise=1.0,sampling='fixed')",
            "differential-privacy(norm=1.0,noise=0.2,sampling='fixed')",
            "dp-sgd(norm=1.0,noise=2.0)",
        ),
        (SUMS,),
    ),
}


def setting(group: Group) -> Setting:
    """Ten clients of unequal size who hold 400 digits together and take a step each in every round."""
    return Setting(
        data={
            "name": "digits",
            "clients": 10,
            "partition": "dirichlet(alpha=0.5)",
            "members": 400,
            "nonmembers": 500,
            "auxiliary": 600,
            "test": 297,
        },
        model={"name": "mlp(hidden=(64,))"},
        training={
            "strategy": group.strategy,
            "fraction": 1.0,
            "rounds": ROUNDS,
            "epochs": 1,
            "batch_size": 64,
            "lr": 0.5,
            "local_test": 0,
        },
        audit={
            "attacks": (*ATTACKS, *group.canaries),
            "defences": group.defences,
            "central": False,
            "curvature": 0,
            "shadows": 0,
            "adaptive": False,
            "ladder": False,
            "observe": 4,
            "seconds": 6.0,
        },
    )


def measure(framework: str) -> None:
    """Run the audits of the framework that are missing."""
    for name, group in GROUPS.items():
        if group.framework == framework:
            audit(setting(group), out=RUNS / name, seeds=SEEDS, workers=1)
            print(f"{name}: done, {sum(os.times()[:4]):.0f} s of a core so far")


if __name__ == "__main__":
    measure("flare")

"""Audits the defences that NVIDIA FLARE and Flower ship, and fills the tables of docs/shipped-defences.md.

`flare`, `flower` and `own` measure, each in an environment that has the framework (`own`: neither), and keep
their runs under runs/shipped; what is there is not measured again. `page` then writes the tables. A
bound from canaries comes from one training, that of the first seed; what attacks get comes from all seeds.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import page as pages

from glasshouse import Setting, audit
from glasshouse.api import read_results
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.target import Variant, federation_of, plan_of
from glasshouse.defences import make_defences
from glasshouse.defences.promise import Conditions
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.measures.families import gaussian_epsilon
from glasshouse.verdicts.contradictions import contradictions
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.pooling import pooled

ROUNDS, SEEDS, CANARIES, FEW = 30, 3, 400, 8
"""Canaries are counted in the first seed; the others train with a few, which say nothing."""

RUNS = Path(__file__).parent.parent / "runs" / "shipped"
FLARE, FLOWER = "glasshouse.integrations.flare.shipped", "glasshouse.integrations.flower.shipped"
ATTACKS = ("loss-threshold", "label-counts", "strongest-inversion", "mandrake")
UPDATES, SUMS = "canary-updates", "canary-clients"
FIXED = f"{FLOWER}:DifferentialPrivacyServerSideFixedClipping"
ADAPTIVE = f"{FLOWER}:DifferentialPrivacyServerSideAdaptiveClipping"


@dataclass(frozen=True)
class Group:
    """Defences that are audited together, with the canaries that test their promises."""

    framework: str
    defences: tuple[str, ...]
    canaries: str = ""
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
        UPDATES,
    ),
    "flower-local": Group(
        "flower",
        (
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=1e-4,epsilon=10.0,delta=1e-5)",
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=1e-4,epsilon=0.5,delta=1e-5)",
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=2.0,epsilon=0.5,delta=1e-5)",
            f"{FLOWER}:LocalDpMod(clipping_norm=1.0,sensitivity=2.0,epsilon=100.0,delta=1e-5)",
        ),
        UPDATES,
    ),
    "flower-central": Group(
        "flower",
        (
            f"{FIXED}(noise_multiplier=1.0,clipping_norm=1.0)",
            f"{FIXED}(noise_multiplier=0.2,clipping_norm=1.0)",
        ),
        SUMS,
    ),
    "flower-adaptive": Group("flower", (), strategy=f"{ADAPTIVE}(noise_multiplier=0.2)"),
    "own": Group(
        "own",
        (
            "differential-privacy(norm=1.0,noise=1.0,sampling='fixed')",
            "differential-privacy(norm=1.0,noise=0.2,sampling='fixed')",
            "dp-sgd(norm=1.0,noise=2.0)",
        ),
        SUMS,
    ),
}


def setting(group: Group, seed: int) -> Setting:
    """Ten clients of unequal size who hold 400 digits together and take a step each in every round."""
    canaries = f"{group.canaries}(canaries={FEW if seed else CANARIES})"
    return Setting(
        seed=seed,
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
            "attacks": (*ATTACKS, *([canaries] if group.canaries else [])),
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


def measure(framework: str, seeds: Sequence[int]) -> None:
    """Run the audits of the framework that are missing, and keep what its defences promise beside them."""
    for name, group in GROUPS.items():
        if group.framework == framework:
            for seed in seeds:
                audit(setting(group, seed), out=RUNS / f"{name}-{seed}", workers=1)
            (RUNS / f"{name}.json").write_text(json.dumps(accounts(group), indent=1))


def accounts(group: Group) -> dict[str, dict[str, float]]:
    """For each defence what it promises of all rounds, and what a round and all of them are worth."""
    described = setting(group, 0)
    experiment = prepare(described)
    found: dict[str, dict[str, float]] = {}
    for spec in group.defences:
        variant = Variant(described.training.strategy, spec)
        plan = plan_of(described, variant)
        everything = federation_of(experiment, variant, Engine(1)).conditions(plan)
        found[spec] = {
            "promised": promised(spec, everything),
            "a round": worth(spec, dataclasses.replace(everything, rounds=1)),
            "all": worth(spec, everything),
        }
    return found


def promised(spec: str, conditions: Conditions) -> float:
    """The epsilon that the defence promises; infinite where it promises none."""
    return min((one.epsilon for one in make_defences(spec).promises(conditions)), default=math.inf)


def worth(spec: str, conditions: Conditions) -> float:
    """The epsilon that its noise is worth; of our own defences what they promise, without rounding up."""
    (defence,) = make_defences(spec).defences
    own = getattr(defence, "worth", None)
    if own:
        return float(own(conditions))
    promises = defence.promises(conditions)
    if promises and promises[0].sampling == "all":
        return gaussian_epsilon(math.sqrt(promises[0].steps) / promises[0].noise, promises[0].delta)
    return promised(spec, conditions)


def findings(seeds: Sequence[int]) -> dict[str, list[Finding]]:
    """The findings of these seeds, by group."""
    return {
        name: [row for seed in seeds for row in read_results(RUNS / f"{name}-{seed}").findings if counts(row)]
        for name in GROUPS
    }


def counts(row: Finding) -> bool:
    """Whether a finding is one that a table shows: of the canaries those of the first seed."""
    return row.seed == 0 or row.family != "canary-clients"


class Page:
    """The tables, from what was measured."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._rows = findings(seeds)
        self._accounts = {name: json.loads((RUNS / f"{name}.json").read_text()) for name in GROUPS}

    def worth(self) -> str:
        """Promises beside what they are worth and what canaries show."""
        lines = [
            f"| defence | promises, {ROUNDS} rounds | worth a round | worth {ROUNDS} rounds "
            "| canaries show at least |",
            "|---|---|---|---|---|",
        ]
        for name, group in GROUPS.items():
            for spec in group.defences:
                account = self._accounts[name][spec]
                cells = [epsilon(account[key]) for key in ("promised", "a round", "all")]
                lines.append(f"| {shown(spec)} | {' | '.join(cells)} | {self._bound(name, spec)} |")
        return "\n".join(lines)

    def attacks(self) -> str:
        """What attacks get, and what is left of the accuracy."""
        lines = [
            "| defence | label counts, exact | inverted, nearly exact | crafted (`mandrake`), nearly exact "
            "| membership AUC | accuracy |",
            "|---|---|---|---|---|---|",
        ]
        for name, group in GROUPS.items():
            for spec in (*(["none"] if name == "flare" else []), *(group.defences or ["none"])):
                name_of = shown(spec if group.defences else group.strategy)
                lines += [f"| {name_of} | {self._got(name, spec)} |"]
        return "\n".join(lines)

    def _bound(self, name: str, spec: str) -> str:
        measure = self._measure(name, spec, "epsilon-delta-lower-bound-client")
        if measure is None or measure.value is None:
            measure = self._measure(name, spec, "epsilon-delta-lower-bound", attack="canary-records")
        if measure is None or measure.value is None:
            return "-"
        refuted = any(one.bound.row.metric == measure.row.metric for one in self._contradicted(name, spec))
        return f"{measure.value:.2f} (n = {measure.n})" + (", **refuted**" if refuted else "")

    def _contradicted(self, name: str, spec: str) -> list[Any]:
        return [one for one in contradictions(pooled(self._rows[name])) if one.defence == spec]

    def _got(self, name: str, spec: str) -> str:
        wanted = (
            ("exact-counts", "curious server", "label-counts"),
            ("near-exact-rate", "curious server", "strongest-inversion"),
            ("near-exact-rate", "blind crafting server", "mandrake"),
            ("auc", "outsider", "loss-threshold"),
            ("test-accuracy", None, None),
        )
        return " | ".join(cell(self._measure(name, spec, *one)) for one in wanted)

    def _measure(
        self, name: str, spec: str, metric: str, adversary: str | None = None, attack: str | None = None
    ) -> Measure | None:
        found = [
            one
            for one in pooled(self._rows[name])
            if (one.row.defence or "none") == spec
            and one.row.metric == metric
            and (adversary is None or one.row.adversary == adversary)
            and (attack is None or str(one.row.attack).startswith(attack))
        ]
        return found[0] if found else None


def cell(measure: Measure | None) -> str:
    """A value with its interval and its number of records."""
    if measure is None or measure.value is None:
        return "-"
    ends = "" if measure.low is None else f" ({measure.low:.2f} to {measure.high:.2f})"
    return f"{measure.value:.2f}{ends}, n = {measure.n:,}"


def epsilon(value: float) -> str:
    """An epsilon with three digits."""
    if math.isinf(value):
        return "none"
    return f"{value:.2e}" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(spec: str) -> str:
    """A defence as its framework calls it."""
    return "none" if spec == "none" else f"`{spec.rpartition(':')[2]}`"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("flare", "flower", "own", "page"))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(range(SEEDS)), help="some of the seeds")
    given = parser.parse_args()
    if given.what != "page":
        measure(given.what, given.seeds)
        return
    pages.PAGE = Path(__file__).parent.parent / "docs" / "shipped-defences.md"
    measured = Page(given.seeds)
    pages.fill("worth", measured.worth())
    pages.fill("attacks", measured.attacks())


if __name__ == "__main__":
    main()

"""The battery: the federation trained under each defence, and every attack run on it with its own access."""

from typing import Any

from glasshouse.attacks import ATTACKS
from glasshouse.auditing.bench import Bench
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import train_target
from glasshouse.auditing.trial import Trial
from glasshouse.findings import Finding, from_row
from glasshouse.learning.engine import Engine
from glasshouse.measures.estimate import proportion
from glasshouse.progress import Progress
from glasshouse.store import RunFolder

Curves = dict[str, list[dict[str, Any]]]


def run_battery(
    bench: Bench, folder: RunFolder, engine: Engine, progress: Progress
) -> tuple[list[Finding], Curves]:
    """Do what is missing in `folder`; returns all findings, and the curves and pictures for the page."""
    findings: list[Finding] = []
    curves: Curves = {"training": [], "roc": [], "gallery": [], "risk": []}
    specs = dict.fromkeys(bench.setting.audit.attacks)
    attacks = [(spec, kind) for spec in specs for kind in ATTACKS.make(spec).needs]
    runs = [(bench.setting.training.strategy, defence) for defence in ("none", *bench.setting.audit.defences)]
    if bench.setting.audit.central:
        runs.insert(0, ("central", "none"))
    runs = list(dict.fromkeys(runs))
    shadowing = Shadowing(bench, folder.work / "shadows", engine, progress)
    for strategy, defence in progress.track(runs, "audit", len(runs)):
        trial = train_target(bench, folder, engine, progress, strategy, defence)
        findings.append(utility(trial))
        curves["training"] += trial.curve()
        if strategy == "central":
            continue
        for spec, kind in progress.track(attacks, f"attacks on {defence}", len(attacks)):
            kept = trial.attack(spec, kind, shadowing)
            findings += [from_row(row) for row in kept["rows"]]
            for name in ("roc", "gallery", "risk"):
                curves[name] += kept[name]
    return findings, curves


def utility(trial: Trial) -> Finding:
    """The global model's test accuracy; the blind guess is the test set's most frequent class."""
    bench = trial.bench
    hits = trial.federation.examiner.hits(trial.history.vector)
    share = proportion(int(hits.sum()), len(hits))
    majority = bench.split.images("test").label_counts().max().item() / len(hits)
    return bench.finding(
        cell=f"{trial.strategy}/{trial.defence}",
        family="utility",
        defence=trial.defence,
        strategy=trial.strategy,
        metric="test-accuracy",
        value=share.value,
        low=share.low,
        high=share.high,
        chance=majority,
        n=share.n,
    )

"""The battery: the federation trained under each defence, and every attack run on it with its own access."""

import dataclasses
from typing import Any

from glasshouse.attacks import ATTACKS
from glasshouse.auditing.bench import Bench
from glasshouse.auditing.grants import Grantor
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.trial import Trial, slug
from glasshouse.defences import make_defences
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.findings import Finding, from_row
from glasshouse.learning.engine import Engine
from glasshouse.learning.seeds import derive
from glasshouse.measures.estimate import proportion
from glasshouse.progress import Progress
from glasshouse.store import RunFolder, write_tensors

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
        trial = _train(bench, folder, engine, progress, strategy, defence)
        findings.append(_utility(trial))
        curves["training"] += trial.curve()
        if strategy == "central":
            continue
        for spec, kind in progress.track(attacks, f"attacks on {defence}", len(attacks)):
            kept = trial.attack(spec, kind, shadowing)
            findings += [from_row(row) for row in kept["rows"]]
            for name in ("roc", "gallery", "risk"):
                curves[name] += kept[name]
    return findings, curves


def _train(
    bench: Bench, folder: RunFolder, engine: Engine, progress: Progress, strategy: str, defence: str
) -> Trial:
    """The federation under `defence`, trained to the end of its plan.

    The strategy `central` is the baseline: a single client that holds everybody's data and always takes part.
    """
    setting = bench.setting
    training = setting.training
    central = strategy == "central"
    plan = Plan(
        rounds=training.rounds,
        fraction=1.0 if central else training.fraction,
        target_accuracy=training.target_accuracy,
        observe=() if central else tuple(range(min(training.rounds, setting.audit.observe))),
    )
    federation = Federation(
        bench.model,
        dataclasses.replace(bench.split, clients=(bench.split.members,)) if central else bench.split,
        training.recipe(),
        engine=engine,
        strategy=STRATEGIES.make("fedavg" if central else strategy),
        defences=make_defences(defence),
        local_test=0 if central else training.local_test,
        seed=derive(setting.seed, "federation"),
    )
    name = strategy if central else defence
    record = Record(folder.work / slug(name))
    history = federation.run(bench.start, plan, record=record, progress=progress, label=f"training, {name}")
    seen = [record.observed(number) for number in plan.observe if number < len(history.rounds)]
    grantor = Grantor(bench.model, federation, history, seen)
    write_tensors(folder.path / "weights" / f"{slug(name)}.safetensors", grantor.model.state_dict())
    return Trial(bench, folder, defence, strategy, federation, history, grantor)


def _utility(trial: Trial) -> Finding:
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

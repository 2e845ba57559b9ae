"""The battery: the federation trained under each defence, and every attack run on it with its own access."""

from typing import Any

from glasshouse.access import Access, PayloadAccess, ReportAccess
from glasshouse.attacks import ATTACKS
from glasshouse.auditing.curvature import sharpness
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import train_target
from glasshouse.auditing.trial import CURVES, Trial
from glasshouse.auditing.yardstick import Outcomes, over_central, over_central_by_eps
from glasshouse.defences.privacy import DifferentialPrivacy
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.findings import Finding, from_row
from glasshouse.learning.engine import Engine
from glasshouse.measures.estimate import proportion
from glasshouse.progress import Progress
from glasshouse.registry import parse_spec
from glasshouse.store import RunFolder

DISCLOSED = ("reported-labels", "mimic-distance", "mimic-neighbours")
"""The attacks on what travels beside the models; they run by themselves wherever anything does."""

Curves = dict[str, list[dict[str, Any]]]


def run_battery(
    experiment: Experiment, folder: RunFolder, engine: Engine, progress: Progress
) -> tuple[list[Finding], Curves]:
    """Do what is missing in `folder`; returns all findings, and the curves and pictures for the page.

    The central baseline, trained first, is the yardstick of accuracy and robustness: it meets the evasion
    attacks and no others.
    """
    findings: list[Finding] = []
    curves: Curves = {name: [] for name in ("training", *CURVES)}
    specs = dict.fromkeys([*experiment.setting.audit.attacks, *disclosed(experiment.setting)])
    attacks = [(spec, kind) for spec in specs for kind in ATTACKS.make(spec).needs]
    evasions = [(spec, kind) for spec, kind in attacks if ATTACKS.make(spec).family == "evasion"]
    runs = [
        (experiment.setting.training.strategy, defence)
        for defence in ("none", *experiment.setting.audit.defences)
    ]
    if experiment.setting.audit.central:
        runs.insert(0, ("central", "none"))
    runs = list(dict.fromkeys(runs))
    shadowing = Shadowing(experiment, folder.work / "shadows", engine, progress)
    yardstick: dict[str, Outcomes] = {}
    for strategy, defence in progress.track(runs, "audit", len(runs)):
        trial = train_target(experiment, folder, engine, progress, strategy, defence)
        findings += [utility(trial), *sharpness(trial)]
        curves["training"] += trial.training()
        central = strategy == "central"
        tried = evasions if central else attacks
        for spec, kind in progress.track(tried, f"attacks on {trial.name}", len(tried)):
            kept = trial.attack(spec, kind, shadowing)
            findings += [from_row(row) for row in kept["rows"]]
            own = kept["outcomes"]
            if central:
                yardstick[spec] = own
            elif own and yardstick.get(spec):
                findings += beside_central(trial, spec, kind, kept, yardstick[spec])
                apart = over_central_by_eps(own, yardstick[spec])
                kept["robustness"] = [point | apart[point["eps"]] for point in kept["robustness"]]
            for name in CURVES:
                curves[name] += kept[name]
    return findings, curves


def disclosed(setting: Setting) -> list[str]:
    """The attacks that the setting's strategy invites and the setting does not name."""
    strategy: Strategy = STRATEGIES.make(setting.training.strategy)
    readable = {ReportAccess: strategy.client_reports, PayloadAccess: strategy.server_payload}
    named = {parse_spec(spec, "attack")[0] for spec in setting.audit.attacks}
    return [
        name
        for name in DISCLOSED
        if name not in named and any(readable[kind] for kind in ATTACKS.make(name).needs)
    ]


def utility(trial: Trial) -> Finding:
    """The global model's test accuracy; the blind guess is the test set's most frequent class."""
    experiment = trial.experiment
    hits = trial.federation.examiner.hits(trial.history.vector)
    share = proportion(int(hits.sum()), len(hits))
    majority = experiment.split.images("test").label_counts().max().item() / len(hits)
    return experiment.finding(
        cell=f"{trial.strategy}/{trial.defence}",
        family="utility",
        defence=trial.defence,
        strategy=trial.strategy,
        metric="test-accuracy",
        **share.entries(),
        chance=majority,
        assumes=uncovered(trial),
    )


def uncovered(trial: Trial) -> tuple[str, ...]:
    """What differential privacy, if it is in force, does not cover, in words."""
    federation = trial.federation
    private = any(isinstance(defence, DifferentialPrivacy) for defence in federation.defences.defences)
    if not (private and federation.strategy.client_reports):
        return ()
    told = "; ".join(federation.strategy.client_reports)
    return (f"differential privacy covers the updates and not what each client tells beside them: {told}",)


def beside_central(
    trial: Trial, spec: str, kind: type[Access], kept: dict[str, Any], central: Outcomes
) -> list[Finding]:
    """By how much more of the same images the federated model gets right, with an attack and without.

    What the attack was given stands in its row of the clean accuracy, without any remark on its success.
    """
    given = next(row["assumes"] for row in kept["rows"] if row["metric"] == "clean-accuracy")
    return [
        trial.finding(
            spec,
            kind,
            metric=score.metric,
            **score.estimate.entries(),
            assumes=tuple(given),
        )
        for score in over_central(kept["outcomes"], central)
    ]

"""The battery: every target trained, and every attack run on it as each adversary that could."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from glasshouse.access import Access, PayloadAccess, ReportAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.inversion.strongest import StrongestInversion
from glasshouse.auditing.adapting import adaptive_forms
from glasshouse.auditing.attacking import Assignment, Attacked, assignments, attack_target
from glasshouse.auditing.canaries import inserts, with_canaries
from glasshouse.auditing.costs import costs
from glasshouse.auditing.curvature import sharpness
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.ladder import climb
from glasshouse.auditing.promised import promised, uncovered
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import (
    CENTRAL,
    Target,
    Variant,
    share_trained,
    stops_early,
    train,
    train_target,
    weights_file,
)
from glasshouse.evidence.evasion import Outcomes, differences
from glasshouse.exhibits import Exhibits, Records
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.shared import Shared
from glasshouse.measures.estimate import proportion
from glasshouse.progress import Progress
from glasshouse.registry import parse_spec, write_spec
from glasshouse.runfolder import RunFolder

DISCLOSED = ("reported-labels", "mimic-distance", "mimic-neighbours")
"""The attacks on what travels beside the models; they run by themselves wherever anything does."""


def run_battery(
    experiment: Experiment,
    folder: RunFolder,
    engine: Engine,
    progress: Progress,
    *,
    detailed: bool = True,
    variants: Sequence[Variant] | None = None,
    only: Collection[Assignment] | None = None,
) -> tuple[list[Finding], Exhibits]:
    """Do what is missing in `folder`; returns all findings, and what the page draws beside them.

    Unless some `variants` are named, all of the setting are tried, and with all attacks unless `only` some.

    The central baseline, which comes first, is the yardstick of accuracy and robustness: it meets the evasion
    attacks and no others. A defended target meets attacks once more that know the defence. Only the
    undefended target is looked at in detail, and only if `detailed`.
    """
    findings: list[Finding] = []
    exhibits = Exhibits()
    tried = all_attacks(experiment.setting)
    reads = frozenset(assignment.access for assignment in tried)
    variants = all_variants(experiment.setting) if variants is None else variants
    _train_many(experiment, folder, engine, progress, variants, reads)
    shadowing = Shadowing(experiment, folder.work / "shadows", engine, progress)
    baseline: dict[Assignment, Outcomes] = {}
    for variant in progress.track(variants, "audit", len(variants)):
        target = train_target(experiment, folder, engine, progress, variant, reads)
        findings += [utility(target, experiment.notes), *costs(target), *promised(target)]
        findings += sharpness(experiment, target, folder)
        exhibits += Exhibits(training=target.curve, records=(outcome_by_image(target),))
        chosen = attacks_on(experiment.setting, variant, tried, only)
        rounds = target.rounds if stops_early(experiment.setting, variant) else None
        results = attack_target(
            target,
            chosen,
            shadowing.under(target.settled, rounds),
            folder,
            engine,
            progress,
            detailed=detailed and variant.name == "none",
        )
        if variant.name == "none" and climbs(experiment.setting):
            findings += climb(experiment, target, folder, engine, progress)
        for assignment, attacked in zip(chosen, results):
            if variant.strategy == CENTRAL:
                baseline[assignment] = attacked.right()
            elif attacked.outcomes and baseline.get(assignment):
                attacked = over_central(attacked, baseline[assignment])
            findings += attacked.findings
            exhibits += attacked.exhibits
        findings += with_canaries(experiment, folder, engine, progress, variant, target.case)
    return findings, exhibits


def all_variants(setting: Setting) -> list[Variant]:
    """The central baseline, if there shall be one, the undefended federation, and that under each defence."""
    strategy = setting.training.strategy
    variants = [Variant(strategy, defence) for defence in ("none", *setting.audit.named_defences)]
    if setting.audit.central:
        variants.insert(0, Variant(CENTRAL, "none"))
    return list(dict.fromkeys(variants))


def all_attacks(setting: Setting) -> list[Assignment]:
    """The attacks on a target, as every adversary that could; those with canaries train their own."""
    specs = [spec for spec in within_budget(setting) if not inserts(spec)]
    return assignments(dict.fromkeys([*specs, *disclosed(setting)]))


def attacks_on(
    setting: Setting,
    variant: Variant,
    tried: Sequence[Assignment],
    only: Collection[Assignment] | None = None,
) -> list[Assignment]:
    """Those of the attacks that meet one target, with those that know its defence; `only` some of them."""
    if variant.strategy == CENTRAL:
        chosen = [assignment for assignment in tried if assignment.meets_central]
    else:
        chosen = [*tried, *assignments(informed_attacks(setting, variant.defence))]
    return [assignment for assignment in chosen if only is None or assignment in only]


@dataclass(frozen=True, eq=False)
class _Training:
    experiment: Shared
    folder: RunFolder
    variant: Variant
    reads: frozenset[type[Access]]


def _train_many(
    experiment: Experiment,
    folder: RunFolder,
    engine: Engine,
    progress: Progress,
    variants: Sequence[Variant],
    reads: frozenset[type[Access]],
) -> None:
    """Train what is missing, a target in each worker, where there are enough of them to keep all busy.

    Fewer are trained one after the other, the clients of a round in different workers.
    """
    missing = [variant for variant in variants if not weights_file(folder.path, variant).exists()]
    if not trains_many(engine, len(missing)):
        return
    shared = engine.share(experiment)
    jobs = [_Training(shared, folder, variant, reads) for variant in missing]
    arriving = engine.map_local(_train_alone, jobs)

    def trained() -> float:
        return sum(share_trained(experiment.setting, folder, variant) for variant in missing)

    with progress.task("training", len(jobs), look=trained) as task:
        for _ in arriving:
            task.advance()
    shared.remove()


def trains_many(engine: Engine, targets: int) -> bool:
    """Whether so many targets are trained at once, and not one after the other."""
    return engine.local and 1 < engine.workers <= targets


def _train_alone(job: _Training) -> None:
    with Progress(quiet=True) as progress, Engine(1) as engine:
        train(job.experiment.get(), job.folder, engine, progress, job.variant, job.reads)


def climbs(setting: Setting) -> bool:
    """Whether the ladder of realism is climbed: by the inversion that the setting names, or not at all."""
    return setting.audit.ladder and any(map(_inverts, setting.audit.attacks))


def _inverts(spec: str) -> bool:
    return parse_spec(spec, "attack")[0] == StrongestInversion.name


def within_budget(setting: Setting) -> list[str]:
    """The setting's attacks; `strongest-inversion`, where it does not say how long it takes, as it may.

    >>> within_budget(Setting(audit={"attacks": ["gap", "strongest-inversion"], "seconds": 5}))
    ['gap', 'strongest-inversion(seconds=2.5)']
    """
    return [_budgeted(spec, setting.audit.seconds) for spec in setting.audit.attacks]


def _budgeted(spec: str, seconds: float) -> str:
    name, options = parse_spec(spec, "attack")
    if not _inverts(spec) or "seconds" in options:
        return spec
    share = seconds / len(StrongestInversion.needs)  # the adversaries that attack one model with it
    return write_spec(name, {"seconds": share, **options})


def informed_attacks(setting: Setting, defence: str) -> list[str]:
    """The setting's attacks once more, as far as knowing `defence` helps them, where it wants those."""
    return adaptive_forms(within_budget(setting), defence) if setting.audit.adaptive else []


def disclosed(setting: Setting) -> list[str]:
    """The attacks that the setting's strategy invites and the setting does not name."""
    strategy: Strategy = STRATEGIES.make(setting.training.strategy)
    readable = {ReportAccess: strategy.client_reports, PayloadAccess: strategy.server_payload}
    named = {parse_spec(spec, "attack")[0] for spec in setting.audit.attacks}
    return [
        name
        for name in DISCLOSED
        if name not in named and any(readable[access] for access in ATTACKS.make(name).needs)
    ]


def utility(target: Target, notes: Sequence[str] = ()) -> Finding:
    """The global model's test accuracy; the blind guess is the test set's most frequent class.

    `notes` on the data and the network go with that of a model without defences.
    """
    assert target.case.truth is not None
    test = target.case.truth.test
    assert test is not None
    return target.case.subject.finding(
        "utility",
        "test-accuracy",
        proportion(int(target.hits.sum()), len(target.hits)),
        cell=target.variant.cell,
        chance=test.label_counts().max().item() / len(test),
        note="; ".join(notes) or None if target.variant.defence == "none" else uncovered(target),
    )


def outcome_by_image(target: Target) -> Records:
    """Which test images the global model gets right."""
    assert target.case.truth is not None
    places, subject = target.case.truth.test_places, target.case.subject
    return Records(
        table="accuracy",
        cell=target.variant.cell,
        strategy=subject.strategy or "",
        defence=subject.defence or "none",
        seed=subject.seed,
        columns={"record": places, "hit": target.hits},
    )


def over_central(attacked: Attacked, baseline: Outcomes) -> Attacked:
    """With what the federated model gets right beyond the central one, on the same images, at each eps."""
    by_eps = differences(attacked.right(), baseline)
    clean = next(finding for finding in attacked.findings if finding.metric == "clean-accuracy")
    added = [
        dataclasses.replace(
            clean,
            metric=f"{name}-accuracy-over-central",
            value=by_eps[eps].value,
            low=by_eps[eps].low,
            high=by_eps[eps].high,
            n=by_eps[eps].n,
            note=by_eps[eps].note,
            seconds=None,
        )
        for name, eps in {"robust": max(by_eps), "clean": 0.0}.items()
    ]
    points = tuple(
        point.model_copy(
            update={
                "difference": by_eps[point.eps].value,
                "difference_low": by_eps[point.eps].low,
                "difference_high": by_eps[point.eps].high,
            }
        )
        for point in attacked.exhibits.robustness
    )
    return dataclasses.replace(
        attacked,
        findings=(*attacked.findings, *added),
        exhibits=attacked.exhibits.model_copy(update={"robustness": points}),
    )

"""Trainings with canaries in them: what they are made of, and what their attacks find."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from glasshouse.access import Access, AggregateAccess, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.canaries import CanaryAttack, CanaryClients, CanaryRecords
from glasshouse.auditing.attacking import Assignment, attack_target
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import NOT_RUN
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.target import CENTRAL, Variant, train_target
from glasshouse.data.images import Images
from glasshouse.defences import make_defences
from glasshouse.defences.promise import Promise
from glasshouse.errors import BadInput, CannotRun
from glasshouse.evidence.truth import NOBODY, Truth
from glasshouse.federation import canaries as federated
from glasshouse.federation.federation import Diverged, Plan
from glasshouse.federation.shadows import Shadows
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.measures.estimate import Estimate
from glasshouse.progress import Progress
from glasshouse.provenance import work_name
from glasshouse.runfolder import RunFolder

FOLDER = "canaries"

RECORDS, CLIENTS, UPDATES = "canary-records", "canary-clients", "canary-updates"


def inserts(spec: str) -> bool:
    """Whether the attack takes a training of its own, with canaries in it."""
    return isinstance(ATTACKS.make(spec), CanaryAttack)


def canary_specs(setting: Setting, promises: Iterable[Promise]) -> list[str]:
    """The canary attacks that meet a target: those that the setting names, and those of its `promises`."""
    named = [spec for spec in setting.audit.attacks if inserts(spec)]
    units = {ATTACKS.make(spec).unit for spec in named}
    promised = {_spec_for(promise) for promise in promises if promise.unit not in units}
    return named + [spec for spec in (RECORDS, CLIENTS, UPDATES) if spec in promised]


def _spec_for(promise: Promise) -> str:
    """The canaries that test a promise against whom it is made."""
    if promise.unit == "record":
        return RECORDS
    return CLIENTS if promise.trust else UPDATES


def place_of(folder: Path, spec: str) -> Path:
    """Where in a run's folder the training with the canaries of `spec` is kept."""
    return folder / FOLDER / work_name(spec, [spec])


def with_canaries(
    experiment: Experiment,
    folder: RunFolder,
    engine: Engine,
    progress: Progress,
    variant: Variant,
    case: Case,
) -> Iterator[Finding]:
    """What canaries find in trainings of their own, like that of `case`, each kept in a folder of its own."""
    if variant.strategy == CENTRAL:
        return
    for spec in canary_specs(experiment.setting, case.promises):
        attack: CanaryAttack = ATTACKS.make(spec)
        (access,) = attack.needs
        try:
            prepared, truth = insert(experiment, attack, variant)
            below = RunFolder(place_of(folder.path, spec), prepared.config(), prepared.origin)
            target = train_target(prepared, below, engine, progress, variant, _reads(access))
        except (CannotRun, Diverged) as reason:
            yield _missing(case, spec, attack, access, str(reason))
            continue
        target = dataclasses.replace(target, case=dataclasses.replace(target.case, truth=truth))
        tried = [Assignment(spec, access)]
        (attacked,) = attack_target(target, tried, _no_shadows, below, engine, progress, detailed=False)
        yield from attacked.findings


def insert(experiment: Experiment, attack: CanaryAttack, variant: Variant) -> tuple[Experiment, Truth]:
    """The experiment with the canaries of `attack` in it, and which way their coins fell."""
    if isinstance(attack, CanaryRecords):
        return insert_records(experiment, attack)
    assert isinstance(attack, CanaryClients)
    return insert_clients(experiment, attack, variant)


def insert_records(experiment: Experiment, attack: CanaryRecords) -> tuple[Experiment, Truth]:
    """Canaries in the place of clients' own records, so that sizes, batches and promises stay what they are.

    Each has one of two wrong labels, by a fair coin: what is exchanged is one record for another.
    """
    split, seed = experiment.split, experiment.setting.seed
    pool, rng = split.pool, numpy_rng(seed, "canary records")
    if pool.classes < 3:
        raise CannotRun("a canary has one of two wrong labels, and there are two classes; it takes three")
    halves = [rng.permutation(positions)[: len(positions) // 2] for positions in split.clients]
    places = rng.permutation(np.concatenate(halves))[: attack.canaries]
    if not len(places):
        raise CannotRun("every client holds one record, which leaves no place for a canary")
    x, y = pool.x.clone(), pool.y.clone()
    if attack.images == "random":
        x[places] = torch.rand(x[places].shape, generator=torch_rng(seed, "canary images"))
    shifts = np.stack([rng.permutation(np.arange(1, pool.classes))[:2] for _ in places], 1)
    labels = (y[places].numpy() + shifts) % pool.classes
    coins = rng.random(len(places)) < 0.5
    y[places] = torch.from_numpy(np.where(coins, labels[0], labels[1]))
    changed = dataclasses.replace(split, pool=Images(x, y, pool.classes))
    holder = np.full(len(pool), -1)
    for client, positions in enumerate(split.clients):
        holder[positions] = client
    truth = dataclasses.replace(
        experiment.truth,
        pool=changed.pool,
        candidates=Images(torch.cat([x[places]] * 2), torch.from_numpy(np.concatenate(labels)), pool.classes),
        holder=np.concatenate([np.where(coins, holder[places], -1), np.where(coins, -1, holder[places])]),
        by_user=False,
        origin=NOBODY,
        groups=NOBODY,
        canaries="records",
    )
    return dataclasses.replace(experiment, split=changed), truth


def insert_clients(
    experiment: Experiment, attack: CanaryClients, variant: Variant
) -> tuple[Experiment, Truth]:
    """Canary clients beside the others, each with one blank image that it does not train on.

    Where clients weigh by their samples, a canary weighs as much as the largest of the others.
    What is exchanged is the sign of a client's update, which moves a sum as far as any exchange of clients.
    Every round is seen.
    """
    split, setting, seed = experiment.split, experiment.setting, experiment.setting.seed
    layout = Layout.of(experiment.model)
    length = make_defences(variant.defence).canary_length(layout)
    if length is None:
        raise CannotRun(
            "nothing bounds the length of a client's update; canary clients take a defence that does, such "
            "as differential-privacy"
        )
    count, pool = attack.canaries, split.pool
    signs = np.where(numpy_rng(seed, "canary clients").random(count) < 0.5, 1, -1)
    blank = Images(torch.zeros(count, *pool.shape), torch.zeros(count, dtype=torch.int64), pool.classes)
    extended = dataclasses.replace(
        split,
        pool=Images(torch.cat([pool.x, blank.x]), torch.cat([pool.y, blank.y]), pool.classes),
        clients=(*split.clients, *np.arange(len(pool), len(pool) + count)[:, None]),
    )
    first = len(split.clients)
    canaries = federated.CanaryClients(
        federated.Directions(derive(seed, "canary directions"), count, layout.trainable, first),
        signs,
        length,
        samples=max(map(len, split.clients)),
    )
    every_round = setting.audit.model_copy(update={"observe": setting.training.rounds})
    # With canaries the cohort is another number; the share of the clients in it must stay what it was.
    cohort = Plan(fraction=setting.training.fraction).participants(first)
    share = setting.training.model_copy(update={"fraction": cohort / first})
    prepared = dataclasses.replace(
        experiment,
        setting=setting.model_copy(update={"audit": every_round, "training": share}),
        split=extended,
        canaries=canaries,
    )
    truth = dataclasses.replace(
        experiment.truth,
        pool=extended.pool,
        clients=extended.clients,
        candidates=blank,
        holder=np.where(signs > 0, first + np.arange(count), -1),
        by_user=False,
        origin=NOBODY,
        groups=NOBODY,
        canaries="clients",
    )
    return prepared, truth


def _reads(access: type[Access]) -> tuple[type[Access], ...]:
    return (access,) if issubclass(access, AggregateAccess | UpdateAccess) else ()


def _no_shadows(kind: str) -> Shadows:
    raise BadInput(f"canaries take no {kind}")


def _missing(case: Case, spec: str, attack: CanaryAttack, access: type[Access], reason: str) -> Finding:
    """The finding that says why there are no canaries."""
    missing = case.subject.finding(
        attack.family,
        NOT_RUN,
        Estimate(None, None, None, 0, reason),
        cell=f"{case.subject.defence}/{spec}",
        adversary=access.adversary,
        attack=spec,
    )
    return dataclasses.replace(missing, n=None)

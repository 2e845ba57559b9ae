"""The ladder of realism: from an update that is easiest to invert to one as clients send it, and defended.

The rungs are updates of the same few training images, made by the code that clients run, each harder to
invert than the one before. The first, one image's gradient in eval mode with its label given, is an upper
bound on what the same search achieves on the others: no federation sends that.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from glasshouse.access import UpdateAccess
from glasshouse.attacks.inversion.effort import affordable_steps
from glasshouse.attacks.inversion.updates import Dropout, mixes_batches
from glasshouse.auditing.adapting import adaptive_forms
from glasshouse.auditing.case import Case, protocol_of
from glasshouse.auditing.examine import NOT_RUN, examine
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.target import Target
from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.defences import make_defences, split_defences
from glasshouse.evidence.truth import NOBODY, Truth
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.federation import Federation
from glasshouse.federation.history import Observed
from glasshouse.federation.live import LiveClients
from glasshouse.findings import LADDER, Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.learning.shared import Shared
from glasshouse.measures.estimate import Estimate
from glasshouse.progress import Progress
from glasshouse.provenance import work_name
from glasshouse.runfolder import RunFolder

VICTIMS, FEWEST_VICTIMS = 8, 4
"""Images on each rung; fewer where the search for so many would be too short."""

LONG_ENOUGH = 100
"""Steps of a search for one image below which there are fewer victims."""

BATCH = 4
"""Images of a client from the rung on that has batches."""


@dataclass(frozen=True)
class Rung:
    """How the clients of a rung train, on `group` images each, and what of it the attacker knows.

    `words` say what makes the rung harder, or easier, than the next.
    """

    name: str
    words: str
    recipe: Recipe
    group: int = 1
    labels_given: bool = False
    defence: str = "none"

    @property
    def cell(self) -> str:
        """The cell of its findings."""
        return f"{LADDER}/{self.name}" + ("" if self.defence == "none" else f"/{self.defence}")


@dataclass(frozen=True, eq=False)
class Climbed:
    """What the search found on one rung."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, eq=False)
class _Job:
    case: Shared
    specs: tuple[str, ...]
    rung: Rung


def climb(
    experiment: Experiment, target: Target, folder: RunFolder, engine: Engine, progress: Progress
) -> list[Finding]:
    """The findings of every rung, for the model that training starts from and the one it ends with.

    All rungs together take about `audit.seconds`. Those that lie in the folder are read from there.
    """
    channel = target.case.protocol.channel
    if not channel.shows_updates:
        return [_not_climbed(target, f"no single update reaches the server: {channel.described}")]
    rungs = rungs_of(experiment, target.case.protocol.recipe)
    seconds = experiment.setting.audit.seconds / len(rungs)
    victims = choose_victims(experiment, seconds)
    files = {rung: file_of(rung) for rung in rungs}
    kept = {rung: folder.kept(file, Climbed) for rung, file in files.items()}
    missing = [rung for rung, climbed in kept.items() if climbed is None]
    cases = [make_case(experiment, target, rung, victims, engine) for rung in missing]
    jobs = [
        _Job(engine.share(case), _specs(rung, len(case.sizes), seconds), rung)
        for rung, case in zip(missing, cases)
    ]
    with progress.task("ladder of realism", len(jobs)) as task:
        for job, findings in zip(jobs, engine.map_local(_examine, jobs)):
            kept[job.rung] = Climbed(tuple(findings))
            folder.keep(files[job.rung], kept[job.rung])
            job.case.remove()
            task.advance()
    return [finding for climbed in kept.values() if climbed is not None for finding in climbed.findings]


def rungs_of(experiment: Experiment, recipe: Recipe) -> list[Rung]:
    """The rungs of an audit whose clients train by `recipe`."""
    batch = min(BATCH, len(experiment.split.members))
    return make_rungs(recipe, experiment.model, experiment.setting.audit.named_defences, batch)


def file_of(rung: Rung) -> str:
    """Under which name what was found on a rung is kept."""
    return f"ladder/{work_name(rung.cell, split_defences(rung.defence))}"


def make_rungs(
    recipe: Recipe, network: nn.Module, defences: Sequence[str] = (), batch: int = BATCH
) -> list[Rung]:
    """The rungs for clients that train `network` by `recipe`, from the easiest to the hardest.

    Where training mode changes nothing about the network, it is no rung of its own. From the rung of batches
    on a client has `batch` images, and takes several steps in each epoch of its training.
    """
    recipe = recipe.in_round(None)
    gradient = dataclasses.replace(
        recipe.plain(),
        weight_decay=0.0,
        mode="eval",
        precision="float32",
        clip_grad_norm=0.0,
        augment="",
    )
    training = dataclasses.replace(gradient, mode="train")
    local = dataclasses.replace(recipe, batch_size=min(recipe.batch(batch), max(2, batch // 2)))
    epochs = f"{local.epochs} epoch{'s' if local.epochs > 1 else ''}"
    rungs = [
        Rung(
            "upper-bound",
            "an upper bound: one image, one gradient step in eval mode, its label given",
            gradient,
            labels_given=True,
        ),
        Rung("labels-unknown", "one image, one gradient step in eval mode, its label unknown", gradient),
        *_train_mode(network, training),
        Rung(
            "batch",
            f"{batch} images, one gradient step{_in_train_mode(network)}, labels unknown",
            training,
            batch,
        ),
        Rung(
            "local-steps",
            f"{batch} images, {local.total_steps(batch)} local steps in {epochs} of the clients' training, "
            f"in batches of {local.batch(batch)}, labels unknown",
            local,
            batch,
        ),
    ]
    return [*rungs, *_defended(rungs[-1], defences)]


def _train_mode(network: nn.Module, recipe: Recipe) -> Iterator[Rung]:
    """The rung of training mode, on two images where batch norm needs a batch to go by."""
    mixed = mixes_batches(network)
    if how := _in_train_mode(network):
        count = "two images" if mixed else "one image"
        words = f"{count}, one gradient step{how}, label{'s' if mixed else ''} unknown"
        yield Rung("train-mode", words, recipe, 2 if mixed else 1)


def _in_train_mode(network: nn.Module) -> str:
    """What training mode changes about the network, in words."""
    modules = list(network.modules())
    changes = {
        "batch norm by the batch": mixes_batches(network),
        "dropout with masks unknown": any(isinstance(module, Dropout) and module.p for module in modules),
    }
    said = " and ".join(change for change, happens in changes.items() if happens)
    return f" in train mode ({said})" if said else ""


def _defended(rung: Rung, defences: Sequence[str]) -> Iterator[Rung]:
    """`rung` under each of the defences."""
    for defence in dict.fromkeys(defences):
        if defence != "none":
            words = f"{rung.words}, under {defence}"
            yield dataclasses.replace(rung, name="defended", words=words, defence=defence)


def choose_victims(experiment: Experiment, seconds: float) -> Images:
    """Training images for the rungs, in an order that groups of them are cut from."""
    network, split = experiment.model, experiment.split
    long_enough = affordable_steps(network, split.pool.shape, 1, seconds / VICTIMS) >= LONG_ENOUGH
    drawn = numpy_rng(experiment.setting.seed, "ladder").permutation(split.members)
    return split.pool[drawn[: VICTIMS if long_enough else FEWEST_VICTIMS]]


def make_case(experiment: Experiment, target: Target, rung: Rung, victims: Images, engine: Engine) -> Case:
    """Clients that hold a group of the victims each; half of them train the first model, half the last."""
    places = np.arange(len(victims))
    groups = tuple(places[start : start + rung.group] for start in range(0, len(victims), rung.group))
    if len(groups) > 1 and len(groups[-1]) < rung.group:
        groups = groups[:-1]
    federation = Federation(
        experiment.model,
        Split(victims, groups, NOBODY, NOBODY, NOBODY),
        rung.recipe,
        engine=engine,
        defences=make_defences(rung.defence),
        seed=derive(experiment.setting.seed, "ladder", rung.cell),
    )
    subject = experiment.subject(target.variant.strategy, rung.defence)
    return Case(
        subject=dataclasses.replace(subject, note=rung.words),
        protocol=protocol_of(federation, experiment.model),
        model=target.case.model,
        rounds=tuple(_rounds(federation, experiment.start, target, len(groups))),
        sizes=tuple(federation.sizes),
        truth=Truth(victims, groups),
        auxiliary=experiment.auxiliary,
        defence=make_defences(rung.defence),
    )


def _rounds(federation: Federation, start: Tensor, target: Target, clients: int) -> Iterator[Observed]:
    assert target.case.clients is not None
    end = target.case.clients.current
    half = -(-clients // 2) if clients > 1 else 0
    for number, sent, asked in ((0, start, range(half)), (target.rounds - 1, end, range(half, clients))):
        if not asked:
            continue
        try:
            delivery = LiveClients(federation, sent).exchange(sent, list(asked), number)
        except RoundFailed:  # all of them refused the model: there is no update to invert
            continue
        yield Observed(number, sent, delivery)


def _specs(rung: Rung, updates: int, seconds: float) -> tuple[str, ...]:
    """The attack on all `updates` of a rung, with an equal share of the seconds for each.

    Under a defence that is worth knowing it and its form that knows it have half of them each.
    """
    labels = "given" if rung.labels_given else "counts"

    def told(seconds: float) -> str:
        return f"strongest-inversion(seconds={seconds:.3g},updates={updates},labels={labels!r})"

    informed = adaptive_forms([told(seconds / 2)], rung.defence)
    return (told(seconds / 2), *informed) if informed else (told(seconds),)


def _examine(job: _Job) -> list[Finding]:
    case = job.case.get()
    return [
        dataclasses.replace(finding, cell=job.rung.cell, family=LADDER)
        for spec in job.specs
        for finding in examine(case, spec, UpdateAccess, detailed=False).findings()
    ]


def _not_climbed(target: Target, reason: str) -> Finding:
    missing = target.case.subject.finding(
        LADDER, NOT_RUN, Estimate(None, None, None, 0, reason), cell=LADDER, adversary=UpdateAccess.adversary
    )
    return dataclasses.replace(missing, n=None)

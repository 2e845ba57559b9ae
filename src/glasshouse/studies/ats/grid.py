"""What is varied at each scale: data, networks, defences, attacks, and how long each may take."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from glasshouse.attacks.inversion.adaptive import worth_knowing
from glasshouse.defences import make_defences
from glasshouse.defences.policies.candidates import draw_policies
from glasshouse.defences.policies.defence import TransformationPolicy
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.seeds import torch_rng
from glasshouse.studies.ats import cells, figures, layout, scoring
from glasshouse.studies.ats.arms import (
    CROPPED,
    PERTURBATIONS,
    Arms,
    arms_of,
    combined,
    crops_of,
    policy_of,
)
from glasshouse.studies.ats.cells import ArmCell, Task, training_of
from glasshouse.studies.ats.claims import verdicts
from glasshouse.studies.ats.layout import HALVED
from glasshouse.studies.ats.measured import STRONGER
from glasshouse.studies.ats.printed import HYBRID, NONE, OVERLAPS, searched
from glasshouse.studies.ats.training import Learner
from glasshouse.studies.measured import Measured
from glasshouse.studies.study import Cell, Presentation, Study
from glasshouse.verdicts.claims import Verdict

COLOUR = (3, 32, 32)
"""The shape for which random policies count as different."""

GIVEN, AVERAGE = "labels='given'", "draws='average'"
SHORT = ("restarts=1", "rough=0.5")
"""One start, and half of its steps in bfloat16."""


@dataclass(frozen=True)
class Group:
    """A table: a learner under several arms, each attacked on some images.

    Attacks other than the usual ones may be named in `specs`.
    """

    name: str
    learner: Learner
    arms: Arms
    images: int
    specs: tuple[str, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True)
class Scale:
    """All of a scale: the usual attacks that do not know the defence, `plain`, and those `knowing` it.

    Figure 4 attacks `images` images under each of `policies` policies by `shorter`, and `undefended` images
    without one, by which is judged whether the search works; S_pri is taken on `scored` images. Figure 8 is
    of the `libraries`. A crop and flip alone leaves nothing to know.
    """

    plain: tuple[str, ...]
    knowing: tuple[str, ...]
    groups: tuple[Group, ...]
    correlated: Learner
    shorter: str
    policies: int
    libraries: tuple[Learner, ...]
    scored: int
    images: int
    undefended: int


def stronger(*options: str) -> str:
    """The search that finds more than the papers', told the label as theirs is."""
    return f"{STRONGER}({','.join(('most=1', GIVEN, *options))})"


def _laptop() -> Scale:
    """Learners have 10% of CIFAR-100 and Fashion-MNIST, and 40% of the 20 classes of ImageNet.

    Where no search beats a blind guess even without a defence, nothing follows, and a cell or two are there
    to show it: of Fashion-MNIST only Table 4, of Table 2 no search by L-BFGS. Of networks only the narrow
    ConvNet: in `resnet20` no search beat it (in probes of two images), in the ConvNet they gained 0.5 dB with
    8 channels in its first layer, and 2.8 dB with 16 (three and four images of CIFAR-100 that no table has).
    S_pri is taken after a quarter of the papers' 60 epochs, as they do.
    """
    steps = "steps=300"
    convnet = Learner("cifar100", "convnet-16", 5000, 8, 5000)
    fashion = Learner("fashion-mnist", "convnet-16", 6000, 6, 5000)
    imagenet = Learner("tiny-imagenet-20", "convnet-16", 4000, 8, 1000, side=32)
    ours = searched("cifar100", "convnet-16")
    hybrid = {NONE: "none", HYBRID: policy_of("+".join(ours))}
    few = {name: PERTURBATIONS[name] for name in ("pruning-99", "laplacian-0.001", "gaussian-0.01")}
    attacks = (f"adam-l1({steps})", f"adam-l2({steps})", f"sgd-cosine({steps})")
    halved = (f"adam-cosine({steps})", f"adam-l2({steps})")
    plain, knowing = stronger(steps, *SHORT), stronger(steps, *SHORT, "culled=0.1", "adaptive=True")
    averaging = stronger(steps, *SHORT, "adaptive=True", AVERAGE)
    both = (plain, knowing)
    return Scale(
        plain=(f"adam-cosine({steps})", plain),
        knowing=(knowing, averaging),
        groups=(
            Group("table-1", convnet, arms_of(ours), 16),
            Group("table-2", convnet, hybrid, 6, attacks),
            Group("table-4", fashion, hybrid, 6, both),
            Group("table-5", imagenet, hybrid, 8, both),
            Group("table-6", convnet, {**few, **combined(ours)}, 8, both),
            Group(CROPPED, convnet, crops_of(ours), 8, both),
            Group(HALVED, convnet, {NONE: "none"}, 6, halved, 0.5),
        ),
        correlated=convnet,
        shorter=plain,
        policies=30,
        images=5,
        undefended=16,
        libraries=(replace(convnet, epochs=60), replace(imagenet, epochs=60)),
        scored=24,
    )


def _paper() -> Scale:
    """Everything as printed; Figure 4 and Figure 8 are of models trained on a tenth of the data."""
    resnet = Learner("cifar100", "resnet20-4", 50_000, 60, 10_000, lr=0.1, batch=128, precision="float32")
    fashion = replace(resnet, data="fashion-mnist", images=60_000)
    imagenet = replace(resnet, data="tiny-imagenet-20", images=10_000, test=1000)
    tenth = replace(resnet, images=5000)
    attacks = ("lbfgs-l2", "lbfgs-cosine", "adam-l1", "adam-l2", "sgd-cosine")
    knowing = tuple(f"{name}(adaptive=True)" for name in attacks)
    groups = []
    for learner in (resnet, fashion):
        for model in ("resnet20-4", "convnet"):
            arms = arms_of(searched(learner.data, model), random=True)
            groups.append(Group("table-1", replace(learner, model=model), arms, 16))
    ours = searched("cifar100", "resnet20-4")
    hybrid = {NONE: "none", HYBRID: policy_of("+".join(ours))}
    for model in ("resnet20-4", "convnet"):
        transferred = arms_of(searched("cifar100", model))
        groups.append(Group("table-4", replace(fashion, model=model), transferred, 16))
    undefended = {NONE: "none"}
    return Scale(
        plain=("adam-cosine", stronger()),
        knowing=(stronger("adaptive=True"), stronger("adaptive=True", AVERAGE)),
        groups=(
            *groups,
            Group("table-2", resnet, hybrid, 16, attacks + knowing),
            Group("table-5", imagenet, hybrid, 16),
            Group("table-6", resnet, {**PERTURBATIONS, **combined(ours)}, 16),
            Group(CROPPED, resnet, crops_of(ours), 16),
            Group(HALVED, resnet, undefended, 16, ("adam-cosine", "adam-l1", "adam-l2"), 0.5),
        ),
        correlated=replace(tenth, epochs=50),
        shorter="adam-cosine(steps=2500)",
        policies=100,
        images=4,
        undefended=16,
        libraries=(tenth, replace(imagenet, images=1000)),
        scored=100,
    )


def _smoke() -> Scale:
    """One cell of each kind on the digits."""
    learner = Learner("digits", "lenet", 400, 6, 400, batch=16, precision="float32")
    ours = searched("cifar100", "resnet20")
    hybrid = {NONE: "none", HYBRID: policy_of("+".join(ours))}
    transferred = {NONE: "none", ours[0]: policy_of(ours[0])}
    return Scale(
        plain=("adam-cosine(steps=12)", stronger("steps=12", "restarts=1")),
        knowing=(
            stronger("steps=12", "restarts=1", "culled=0.25", "adaptive=True"),
            stronger("steps=12", "restarts=1", "adaptive=True", AVERAGE),
        ),
        groups=(
            Group("table-1", learner, arms_of(ours, random=True), 3),
            Group("table-2", learner, hybrid, 2, ("lbfgs-l2(steps=2)", "adam-l2(steps=12)")),
            Group("table-4", learner, transferred, 2),
            Group("table-6", learner, combined(ours), 2),
            Group(CROPPED, learner, {CROPPED: crops_of(ours)[CROPPED]}, 2),
            Group(HALVED, learner, {NONE: "none"}, 2, ("adam-cosine(steps=12)", "adam-l2(steps=12)"), 0.5),
        ),
        correlated=learner,
        shorter="adam-cosine(steps=6)",
        images=2,
        undefended=3,
        policies=4,
        libraries=(learner,),
        scored=4,
    )


SCALES = {"smoke": _smoke, "laptop": _laptop, "paper": _paper}


class ATSStudy(Study):
    """Do policies of image transformations defeat inversions, also of someone who knows them?"""

    name = "ats"
    title = "Automatic transformation search: policies against the inversion of gradients"

    def seeds(self, scale: str) -> int:
        """One at all but the paper's scale: images, not models, make the intervals."""
        return 3 if scale == "paper" else 1

    def cells(self, scale: str) -> list[Cell]:
        """Trainings come first: the cells that attack their models find them in the shared folder."""
        grid = SCALES[scale]()
        entries = [*_trainings(grid), *_attacks(grid), *_figure_4(grid), *_figure_8(grid)]
        assert len({entry.name for entry in entries}) == len(entries)
        return entries

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Measured(findings)
        return Presentation(
            tuple(layout.tables(measured)),
            tuple(figures.charts(measured)),
            tuple(figures.pictures(measured)),
        )


def _trainings(grid: Scale) -> Iterator[Cell]:
    """A cell for each model that a table shows, and for that of Figure 4."""
    named = set()
    for group in grid.groups:
        for arm, defence in group.arms.items():
            address = training_of(_address(group, arm))
            if address not in named:
                named.add(address)
                run = partial(cells.training_cell, address, group.learner, defence)
                known = cells.known_accuracy(address) is not None
                yield Cell(str(address), run, single=True, printed=known)
    learner = grid.correlated
    address = training_of(ArmCell("figure-4", learner.data, learner.model, NONE))
    yield Cell(str(address), partial(cells.training_cell, address, learner, "none"), single=True)


def _attacks(grid: Scale) -> Iterator[Cell]:
    for group in grid.groups:
        for arm, defence in group.arms.items():
            task = Task(
                _address(group, arm),
                group.learner,
                defence,
                trained_under=defence,
                specs=_specs(grid, group, arm, defence),
                images=group.images,
                factor=group.factor,
                course=group.name == "table-1",
            )
            known = any(cells.known_numbers(task, spec) for spec in task.specs)
            yield Cell(str(task.address), partial(cells.attack_cell, task), single=True, printed=known)


def _specs(grid: Scale, group: Group, arm: str, defence: str) -> tuple[str, ...]:
    """Who does not know the defence, and who does, where there is something to know.

    Only of a policy there are cases to average over.
    """
    stack = make_defences(defence)
    known = worth_knowing(stack) and arm != CROPPED
    policy = any(isinstance(one, TransformationPolicy) for one in stack.defences)
    specs = group.specs or (*grid.plain, *grid.knowing)
    return tuple(
        spec for spec in specs if (known or "adaptive=True" not in spec) and (policy or AVERAGE not in spec)
    )


def _figure_4(grid: Scale) -> Iterator[Cell]:
    """No policy, and policies drawn at random; as in the papers the model was trained without."""
    drawn = draw_policies(2 * grid.policies, COLOUR, torch_rng(0, "figure-4"))[: grid.policies]
    defences = {NONE: "none", **{str(policy): policy_of(str(policy)) for policy in drawn}}
    for arm, defence in defences.items():
        task = Task(
            ArmCell("figure-4", grid.correlated.data, grid.correlated.model, arm),
            grid.correlated,
            defence,
            trained_under="none",
            specs=(grid.shorter,),
            images=grid.undefended if arm == NONE else grid.images,
        )
        yield Cell(str(task.address), partial(scoring.policy_cell, task, grid.scored), single=True)


def _figure_8(grid: Scale) -> Iterator[Cell]:
    for learner in grid.libraries:
        address = ArmCell("figure-8", learner.data, learner.model, "library")
        run = partial(scoring.library_cell, learner, grid.scored)
        yield Cell(str(address), run, single=True, printed=learner.data in OVERLAPS)


def _address(group: Group, arm: str) -> ArmCell:
    return ArmCell(group.name, group.learner.data, group.learner.model, arm)

"""One image, one step, eval mode: the update of a client, and how near an attack on it comes.

The attack receives the update. Which policy and which signs were drawn for the image only the scoring knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import Protocol, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import Examination, examine
from glasshouse.data.images import Images
from glasshouse.defences import make_defences
from glasshouse.defences.policies.defence import TransformationPolicy
from glasshouse.defences.policies.privacy_score import cosines
from glasshouse.evidence.reconstruction import Reconstructions, Snapshot
from glasshouse.evidence.truth import Truth
from glasshouse.federation.history import Observed
from glasshouse.federation.updates import Delivery, Update
from glasshouse.findings import Subject
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.pictures import mean_guess, paired_psnr
from glasshouse.registry import parse_spec
from glasshouse.studies.ats.training import Trained, materials_of, thirds
from glasshouse.verdicts.informed import uninformed

STEP = Recipe(batch_size=0, lr=1.0, mode="eval")
"""What a client does: its update is minus the gradient of its image."""

FILLED = 0.75
"""A white image that was moved is lighter where its pixels lie, and black or grey where it was filled in."""

UPPER_BOUND = "one image, eval mode, label given: an upper bound on what leaks"


@dataclass(frozen=True, eq=False)
class Victim:
    """The image of one client, shape (1, C, H, W), as it was and `transformed`, and the case made of it.

    `draws` seeds what its defences drew.
    """

    case: Case
    original: Tensor
    transformed: Tensor
    draws: tuple[int, int]

    def transform(self, x: Tensor) -> Tensor:
        """What became of the image, done to another one."""
        assert self.case.defence is not None
        network, label = self.case.protocol.architecture, _label(self.case)
        return self.case.defence.training().prepare(network, x, label, self._rng())

    def move(self, x: Tensor) -> Tensor:
        """Another image, moved as this one was; its levels stay as they are."""
        assert self.case.defence is not None
        rng = self._rng()
        for defence in self.case.defence.defences:
            if isinstance(defence, TransformationPolicy):
                x = defence.move(x, rng)
        return x

    @property
    def visible(self) -> Tensor:
        """The pixels of the transformed image that come from the original, bool of shape (H, W)."""
        return (self.move(torch.ones_like(self.original)) > FILLED).all(1)[0]

    def _rng(self) -> torch.Generator:
        return torch_rng(self.draws[0], "victim", self.draws[1])


def make_victim(
    model: Trained, defence: str, number: int, seed: int, *, factor: float = 1.0, subject: Subject
) -> Victim:
    """The client that holds test image `number`, under `defence`; its loss is multiplied by `factor`."""
    image = materials_of(model.learner).test[number : number + 1]
    stack, network = make_defences(defence), model.network
    layout, rng = Layout.of(network), torch_rng(seed, "victim", number)
    transformed = stack.training().prepare(network, image.x, image.y, rng)
    network.eval()
    delta = torch.zeros(layout.size)
    delta[: layout.trainable] = -factor * torch.cat(
        [part.reshape(-1) for part in gradient_of(network, transformed, image.y)]
    )
    delta = stack.on_update(delta, layout, rng)
    update = Update(0, 1, delta)
    case = Case(
        subject=subject,
        protocol=Protocol(network, layout, STEP, image.shape, image.classes),
        rounds=(Observed(0, read_vector(network), Delivery(delta, 1, (0,), (update,))),),
        sizes=(1,),
        truth=Truth(image, (np.array([0]),)),
        defence=make_defences(defence),
    )
    return Victim(case, image.x, transformed, (seed, number))


def gradient_of(network: nn.Module, x: Tensor, y: Tensor) -> Sequence[Tensor]:
    """The gradient of the loss on images, shape (N, C, H, W), by each parameter."""
    with torch.enable_grad():
        return torch.autograd.grad(F.cross_entropy(network(x), y), list(network.parameters()))


@dataclass(frozen=True)
class GradSim:
    """Mean cosine of the parameters' gradients to those that were sent, at a step of a search.

    Of all tensors, and of the first and the last third of them.
    """

    step: int
    all: float
    shallow: float
    deep: float


@dataclass(frozen=True)
class Attempt:
    """What one attack made of one image: PSNRs in dB, and those of a blind guess beside them.

    The guess is the mean training image; beside the transformed image it is moved like that. Of the
    transformed image there is also what was made of its `visible` pixels alone, those that come from the
    original: a frame that a policy fills in says nothing about an image, whoever finds it.
    """

    to_transformed: float
    to_visible: float
    to_original: float
    blind_to_transformed: float
    blind_to_visible: float
    blind_to_original: float
    seconds: float
    granted: tuple[str, ...]
    note: str | None
    course: tuple[GradSim, ...] = ()


def knows_defence(spec: str) -> bool:
    """Whether an attack is told which defences are in force."""
    return uninformed(spec) != spec


def averages(spec: str) -> bool:
    """Whether an attack that knows the defence lowers the mean over what it may have drawn."""
    return "draws='average'" in spec


def is_shortened(spec: str) -> bool:
    """Whether a search takes fewer steps than its default."""
    name, options = parse_spec(spec, "attack")
    usual: int = getattr(ATTACKS.make(name), "steps", 0)
    return int(options.get("steps", usual)) < usual


def attack(
    victim: Victim, spec: str, auxiliary: Images, seed: int, *, course: bool
) -> tuple[Attempt, Tensor] | Examination:
    """What an attack makes of a victim and the image it returns; the examination alone where it cannot run.

    An attacker who knows the defence looks for the original: its image is transformed like the victim's
    before it is compared with that. Every attack on an image starts from the same noise.
    """
    rng = torch_rng(seed, "attack", victim.draws[1])
    examination = examine(victim.case, spec, UpdateAccess, rng=rng, detailed=False)
    if examination.reason is not None:
        return examination
    evidence = examination.evidence
    assert isinstance(evidence, Reconstructions)
    (part,) = evidence.parts
    guess = part.x.detach()
    as_trained = victim.transform(guess) if knows_defence(spec) else guess
    blind = mean_guess(victim.original, auxiliary.x)
    moved, visible = victim.move(blind), victim.visible
    attempt = Attempt(
        _psnr(victim.transformed, as_trained),
        _psnr(victim.transformed, as_trained, visible),
        _psnr(victim.original, guess),
        _psnr(victim.transformed, moved),
        _psnr(victim.transformed, moved, visible),
        _psnr(victim.original, blind),
        examination.seconds or 0.0,
        examination.granted,
        evidence.note,
        tuple(similarity(victim, snapshot) for snapshot in part.snapshots) if course else (),
    )
    return attempt, guess


def similarity(victim: Victim, snapshot: Snapshot) -> GradSim:
    """How alike the gradient of the search's image is to the one that was sent."""
    protocol = victim.case.protocol
    (observed,) = victim.case.rounds
    sent = protocol.layout.named(-observed.delivery.mean)
    network, label = protocol.architecture, _label(victim.case)
    names = [name for name, _ in network.named_parameters()]
    found = dict(zip(names, gradient_of(network, snapshot.x.clamp(0, 1), label)))
    cosine = {
        name: float(cosines(torch.stack([found[name].reshape(-1), sent[name].reshape(-1)])[None])[0, 0])
        for name in names
    }
    parts = {"all": names, **dict(thirds(names))}
    means = {part: float(np.mean([cosine[name] for name in tensors])) for part, tensors in parts.items()}
    return GradSim(snapshot.step, **means)


def _label(case: Case) -> Tensor:
    assert case.truth is not None
    return case.truth.pool.y


def _psnr(original: Tensor, guess: Tensor, pixels: Tensor | None = None) -> float:
    """In dB, over all pixels or some, bool of shape (H, W); of none at all every guess has 0."""
    if pixels is not None:
        original, guess = original[..., pixels], guess[..., pixels]
    return float(paired_psnr(original, guess)[0]) if original.numel() else 0.0

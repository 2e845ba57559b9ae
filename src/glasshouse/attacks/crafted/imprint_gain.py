"""How loud an imprint layer may be, and the one picture that the network behind it sees for all samples."""

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import ServerAccess
from glasshouse.attacks.crafted.leakage import TINY, Bins
from glasshouse.attacks.inversion.updates import one_step
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun

PICTURES = 32
"""Among how many auxiliary images the one is chosen that the network sees in place of every sample."""
REACH, SWING, DRIFT = 1.0, 0.05, 1.0
"""What bounds the gain.

The largest entry that a client's update should have, as channels quantise, and cut what is too large; how far
the picture may move between samples, in units of the pixels' range; how many bins local steps may move a
threshold by.
"""


class FixedPicture(NamedTuple):
    """What the network sees: the picture, shape (C, H, W), and the direction of that shape it moves in."""

    picture: Tensor
    direction: Tensor


class Gain(NamedTuple):
    """The factor of the rows and their biases, and that of the second layer."""

    rows: float
    columns: float


def fixed_picture(network: nn.Module, auxiliary: Images) -> FixedPicture:
    """The picture that leaves the network least decided, and a direction in which every class answers.

    A sample's weight is how much its loss changes along the direction: p.r - r_y, where r are the changes of
    the logits and p the network's answer. With r of alternating signs it is far from zero for all classes
    y unless p is sure of one.
    """
    network = deepcopy(network).train()

    def logits(picture: Tensor) -> Tensor:
        # Clients' batches hold the picture many times over; batch norm asks for at least two.
        with torch.random.fork_rng(devices=[]):
            both: Tensor = network(picture.expand(2, *picture.shape))
        return both.mean(0)

    with torch.no_grad():
        sureness = [float(logits(picture).softmax(0).max()) for picture in auxiliary.x[:PICTURES]]
    picture = auxiliary.x[sureness.index(min(sureness))].clone().requires_grad_()
    answers = logits(picture)
    slopes = [
        torch.autograd.grad(logit, picture, retain_graph=True, materialize_grads=True)[0].flatten()
        for logit in answers
    ]
    if not all(slope.isfinite().all() for slope in slopes):
        raise CannotRun("the network's gradients with respect to its input are not finite")
    wanted = 1.0 - 2.0 * (torch.arange(len(slopes)) % 2).double()
    direction = torch.linalg.pinv(torch.stack(slopes).double(), rtol=1e-3) @ wanted
    size = float(direction.abs().max())
    if not (math.isfinite(size) and size > 0):
        raise CannotRun("the network passes no gradient to its input, so nothing would be imprinted")
    return FixedPicture(picture.detach(), (direction / size).reshape(picture.shape))


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the gain is measured on: auxiliary images, their brightness, (N,), and the layer's inputs."""

    network: nn.Module
    fixed: FixedPicture
    bins: Bins
    auxiliary: Images
    brightness: Tensor
    inputs: Tensor

    def weights(self, count: int) -> Tensor:
        """How much the losses of `count` images change with the rows' answer, at columns of gain 1."""
        moved = torch.zeros(count, 1, 1, 1, requires_grad=True)
        network = deepcopy(self.network).train()
        with torch.random.fork_rng(devices=[]):
            logits = network(self.fixed.picture + moved * self.fixed.direction.float())
        loss = F.cross_entropy(logits, self.auxiliary.y[:count], reduction="sum")
        return torch.autograd.grad(loss, moved)[0].flatten().double()

    def swing(self) -> float:
        """How far the rows' answer strays between images, at rows of gain 1."""
        answers = self.bins.answer(self.brightness)
        return float((answers - answers.mean()).abs().max())

    def drift(self, weights: Tensor) -> float:
        """How many bins a step of unit size moves a threshold, at rows and columns of gain 1.

        A sample's weight times x.x' + 1 is what it adds to an active row's measurement of another one.
        """
        count = len(weights)
        active = (self.brightness[:count] > self.bins.thresholds[:, None]).double()
        alike = self.inputs[:count] @ self.inputs[:count].T + 1
        moved = float(((active * weights) @ alike).abs().max()) / count
        return moved / self.bins.width


def choose_gain(calibration: Calibration, access: ServerAccess) -> Gain:
    """The loudest gain that keeps updates within REACH, the picture within SWING and thresholds within DRIFT.

    Updates grow with the gain of the columns, the picture with that of columns times rows; thresholds, which
    only matter where clients take more than one step, move with columns over rows.
    """
    recipe, sizes = access.protocol.recipe, access.sizes
    weights = calibration.weights(min(max(2, *map(recipe.batch, sizes)), len(calibration.inputs)))
    travel = max(recipe.effective_rate(size) for size in sizes)
    loudest = REACH / max(travel * float(weights.abs().max()), TINY)
    product = SWING / max(calibration.swing(), TINY)
    if one_step(recipe, sizes):
        return Gain(min(1.0, product / loudest), loudest)
    ratio = DRIFT / max(travel * calibration.drift(weights), TINY)
    columns = min(loudest, math.sqrt(ratio * product))
    return Gain(columns / ratio, columns)

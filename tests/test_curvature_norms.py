"""Curvature through the layers in which torch's own second derivatives are wrong or fail.

Expected values are finite differences in double precision: of losses, or of first derivatives.
"""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.measures.curvature import input_curvature, product, top_eigenvalues
from glasshouse.measures.curvature.product import Hessian

torch.set_num_threads(1)

SIDE, STEP = 4, 1e-3
NORMS: dict[str, Callable[[], nn.Module]] = {
    "group norm": lambda: nn.GroupNorm(2, 4),
    "group norm without weights": lambda: nn.GroupNorm(2, 4, affine=False),
    "instance norm": lambda: nn.InstanceNorm2d(4, affine=True),
    "instance norm without weights": lambda: nn.InstanceNorm2d(4),
    "layer norm": lambda: nn.LayerNorm((4, SIDE, SIDE)),
    "layer norm without weights": lambda: nn.LayerNorm((4, SIDE, SIDE), elementwise_affine=False),
}

every_norm = pytest.mark.parametrize("norm", NORMS)
every_colour = pytest.mark.parametrize("channels", [1, 3], ids=["grey", "colour"])


class Attending(nn.Module):
    """Rows of pixels as tokens, normalised, then torch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIDE)
        self.attention = nn.MultiheadAttention(SIDE, 2, batch_first=True)
        self.out = nn.Linear(SIDE * SIDE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x.mean(1))
        return self.out(self.attention(tokens, tokens, tokens, need_weights=False)[0].flatten(1))


def normed_network(norm: str, channels: int) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        NORMS[norm](),
        nn.Tanh(),
        nn.Conv2d(4, 2, 3),
        nn.Flatten(),
        nn.Linear(2 * (SIDE - 2) ** 2, CLASSES),
    )
    for parameter in network[1].parameters():  # weights other than one, biases other than zero
        nn.init.normal_(parameter, 1, 0.3)
    return network


def some_images(channels: int) -> Images:
    rng = torch.Generator().manual_seed(1)
    return Images(torch.rand(7, channels, SIDE, SIDE, generator=rng), torch.arange(7) % CLASSES, CLASSES)


def moved(model: nn.Module, vector: Tensor, steps: float) -> nn.Module:
    """A copy in double precision whose parameters have gone `steps` small steps along `vector`."""
    copy = deepcopy(model).double().eval()
    with torch.no_grad():
        pieces = vector.double().split([parameter.numel() for parameter in copy.parameters()])
        for parameter, piece in zip(copy.parameters(), pieces):
            parameter += steps * STEP * piece.view(parameter.shape)
    return copy


def second_differences(model: nn.Module, images: Images, vector: Tensor) -> Tensor:
    """Each loss's second derivative along `vector` from five values, with an error of order STEP^4."""
    values = []
    for steps in (-2, -1, 0, 1, 2):
        with torch.no_grad():
            logits = moved(model, vector, steps)(images.x.double())
        values.append(F.cross_entropy(logits, images.y, reduction="none"))
    return torch.tensor([-1, 16, -30, 16, -1]).double() @ torch.stack(values) / (12 * STEP**2)


def gradient_differences(model: nn.Module, images: Images, vector: Tensor) -> Tensor:
    """The mean loss's Hessian times `vector` from four gradients, with an error of order STEP^4."""
    gradients = []
    for steps in (-2, -1, 1, 2):
        copy = moved(model, vector, steps)
        loss = F.cross_entropy(copy(images.x.double()), images.y)
        pieces = torch.autograd.grad(loss, list(copy.parameters()))
        gradients.append(torch.cat([piece.reshape(-1) for piece in pieces]))
    return torch.tensor([1, -8, 8, -1]).double() @ torch.stack(gradients) / (12 * STEP)


def pixel_hessians(model: nn.Module, images: Images) -> Tensor:
    """Every image's Hessian in its pixels, (N, pixels, pixels), from gradients at moved pixels."""
    double = deepcopy(model).double().eval()

    def gradients(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(F.cross_entropy(double(x), images.y, reduction="sum"), x)[0].flatten(1)

    x = images.x.double()
    columns = []
    for place in range(x[0].numel()):
        step = torch.zeros_like(x).flatten(1)
        step[:, place] = STEP
        step = step.view(x.shape)
        near = gradients(x + step) - gradients(x - step)
        far = gradients(x + 2 * step) - gradients(x - 2 * step)
        columns.append((8 * near - far) / (12 * STEP))
    return torch.stack(columns, dim=2)


def check_parameters(model: nn.Module, images: Images) -> None:
    operator = Hessian(model, images)
    vector = torch.randn(operator.size, generator=torch.Generator().manual_seed(0))
    vector /= vector.norm()
    product, expected = operator(vector).double(), gradient_differences(model, images, vector)
    assert float((product - expected).norm()) <= 1e-5 * float(expected.norm())
    along, expected = operator.along(vector).double(), second_differences(model, images, vector)
    assert float((along - expected).norm()) <= 1e-5 * float(expected.norm())


def check_pixels(model: nn.Module, images: Images) -> None:
    expected = torch.linalg.eigvalsh(pixel_hessians(model, images))[:, -1]
    assert input_curvature(model, images, tolerance=1e-5) == pytest.approx(expected.numpy(), rel=1e-4)


@every_norm
@every_colour
def test_second_derivatives_in_the_parameters_are_finite_differences(norm, channels):
    check_parameters(normed_network(norm, channels), some_images(channels))


@every_norm
@every_colour
def test_curvature_in_the_pixels_is_that_of_finite_differences(norm, channels):
    check_pixels(normed_network(norm, channels), some_images(channels))


def test_layer_norm_on_rows_and_torchs_attention_agree_with_finite_differences():
    torch.manual_seed(0)
    rows = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 9), nn.LayerNorm(9), nn.Linear(9, CLASSES))
    for model in (rows, Attending()):
        check_parameters(model, some_images(1))
        check_pixels(model, some_images(1))


@pytest.mark.parametrize("norm", ["group norm", "instance norm", "layer norm"])
def test_the_interval_of_the_largest_eigenvalue_is_that_of_finite_differences(norm):
    model, images = normed_network(norm, 1), some_images(1)
    size = Hessian(model, images).size
    dense = torch.stack([gradient_differences(model, images, unit) for unit in torch.eye(size)])
    values, vectors = torch.linalg.eigh((dense + dense.T) / 2)
    along = second_differences(model, images, vectors[:, -1])
    half = 1.96 * along.std() / len(images) ** 0.5
    result = top_eigenvalues(model, images, tolerance=1e-5)
    assert result.values[0] == pytest.approx(values[-1].item(), rel=1e-4)
    assert result.estimate.low == pytest.approx((values[-1] - half).item(), rel=1e-3)
    assert result.estimate.high == pytest.approx((values[-1] + half).item(), rel=1e-3)


def test_no_image_touches_the_second_derivative_of_another(monkeypatch):
    model, images = normed_network("group norm", 1), some_images(1)
    operator = Hessian(model, images)
    vector = torch.randn(operator.size, generator=torch.Generator().manual_seed(0))
    whole = operator.along(vector)
    monkeypatch.setattr(product, "TOGETHER", 3)
    assert torch.allclose(Hessian(model, images).along(vector), whole, rtol=1e-4)


def test_a_model_without_gradients_is_refused_in_one_line():
    class Detached(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(CLASSES))

        def forward(self, x: Tensor) -> Tensor:
            return self.logits.expand(len(x), -1)

    detached = Detached(nn.Flatten(), nn.Linear(SIDE**2, CLASSES))
    with pytest.raises(BadInput, match="no gradient in its parameters"):
        top_eigenvalues(detached, some_images(1))
    with pytest.raises(BadInput, match="no gradient in its pixels"):
        input_curvature(Constant(), some_images(1))

from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES, make_images, make_model, make_plain_model
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.func import functional_call, hessian

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.measures.curvature import density, input_curvature, top_eigenvalues, trace
from glasshouse.measures.curvature import product as products
from glasshouse.measures.curvature.krylov import Krylov
from glasshouse.measures.curvature.product import Hessian

torch.set_num_threads(1)


def small_network(seed: int = 0, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """Convolutions, overlapping pooling, batch norm, dropout and two linear layers in few parameters."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False),
        activation(),
        nn.MaxPool2d(3, stride=2),
        nn.BatchNorm2d(3),
        nn.Sequential(nn.Conv2d(3, 2, 2, stride=1), activation()),
        nn.Flatten(),
        nn.Linear(8, 5),
        activation(),
        nn.Dropout(0.5),
        nn.Linear(5, CLASSES),
    )
    for _ in range(3):  # running statistics other than zero and one
        network(torch.rand(20, 1, 8, 8))
    return network


def dense_hessian(model: nn.Module, images: Images) -> np.ndarray:
    """All second derivatives of the mean loss, in float64, by torch's own hessian of a function."""
    model = deepcopy(model).eval().double()
    names, shapes = zip(*((name, p.shape) for name, p in model.named_parameters()))
    start = torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    def loss(vector: Tensor) -> Tensor:
        pieces = vector.split([shape.numel() for shape in shapes])
        point = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes)}
        return F.cross_entropy(functional_call(model, point, (images.x.double(),)), images.y)

    return hessian(loss)(start).detach().numpy()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_the_largest_eigenvalues_are_those_of_the_dense_hessian(seed, activation):
    model, images = small_network(seed, activation), make_images(40)
    truth = np.linalg.eigvalsh(dense_hessian(model, images))[::-1]
    one = top_eigenvalues(model, images, tolerance=1e-4, seed=seed)
    three = top_eigenvalues(model, images, count=3, tolerance=1e-4, seed=seed)
    assert one.converged
    assert three.converged
    assert one.values == pytest.approx(truth[:1], rel=1e-4)
    assert three.values == pytest.approx(truth[:3], rel=1e-4)
    assert max(one.residual, three.residual) <= 1e-4


def test_many_eigenvalues_are_those_that_scipys_eigsh_finds():
    model, images = make_model(), make_images(40)
    operator = Hessian(model, images)

    def times(vector: np.ndarray) -> np.ndarray:
        return operator(torch.from_numpy(vector.astype(np.float32)).reshape(-1)).numpy()

    linear = LinearOperator((operator.size, operator.size), matvec=times, dtype=np.float32)
    theirs = np.sort(eigsh(linear, k=6, which="LA", tol=1e-5, v0=np.ones(operator.size))[0])[::-1]
    assert top_eigenvalues(model, images, count=6, tolerance=1e-4).values == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_products_and_gradient_are_those_of_the_dense_hessian(activation):
    model, images = small_network(1, activation), make_images(30)
    operator = Hessian(model, images)
    vector = torch.randn(operator.size, generator=torch.Generator().manual_seed(0))
    expected = dense_hessian(model, images) @ vector.double().numpy()
    assert operator(vector).numpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    loss = F.cross_entropy(model.eval()(images.x), images.y)
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    assert torch.allclose(operator.gradient(), gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_along_a_vector_every_image_has_its_own_second_derivative(activation):
    model, images = small_network(2, activation), make_images(6)
    operator = Hessian(model, images)
    vector = torch.randn(operator.size, generator=torch.Generator().manual_seed(0))
    v = vector.double().numpy()
    expected = [v @ dense_hessian(model, images[i : i + 1]) @ v for i in range(6)]
    assert operator.along(vector).numpy() == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("make", [make_model, small_network, make_plain_model])
def test_written_out_products_agree_with_autograd(make, monkeypatch):
    model, images = make(), make_images(20)
    written = Hessian(model, images)
    vector = torch.randn(written.size, generator=torch.Generator().manual_seed(0))
    product, along = written(vector), written.along(vector)
    monkeypatch.setattr(products, "plain", lambda model: False)
    general = Hessian(model, images)
    assert torch.allclose(product, general(vector), rtol=1e-4, atol=1e-5 * float(product.norm()))
    assert torch.allclose(along, general.along(vector), rtol=1e-3, atol=1e-4 * float(along.abs().max()))


class Shortcut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.unused = nn.Linear(3, 3)
        self.outer = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.outer(x + self.inner(x).relu())


def test_networks_that_are_no_row_of_known_layers_are_differentiated_by_autograd():
    twice = nn.Linear(64, 64)
    hooked = make_plain_model()
    hooked[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    for model in (Shortcut(), nn.Sequential(nn.Flatten(), twice, nn.ReLU(), twice), hooked):
        images = make_images(8)
        operator = Hessian(model, images)
        vector = torch.randn(operator.size, generator=torch.Generator().manual_seed(0))
        step = 1e-4
        slopes = []
        for sign in (1, -1):
            moved = deepcopy(model).double().eval()
            pieces = vector.split([p.numel() for p in moved.parameters()])
            with torch.no_grad():
                for parameter, piece in zip(moved.parameters(), pieces):
                    parameter += sign * step * piece.view(parameter.shape)
            loss = F.cross_entropy(moved(images.x.double()), images.y)
            slopes.append(torch.autograd.grad(loss, list(moved.parameters()), materialize_grads=True))
        up, down = (torch.cat([g.reshape(-1) for g in slope]) for slope in slopes)
        difference = ((up - down) / (2 * step)).float()
        assert float((operator(vector) - difference).norm()) <= 1e-2 * float(difference.norm())


def test_the_hessian_of_softmax_regression_is_the_mean_of_its_closed_form():
    images = make_images(12)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES, bias=False))
    with torch.no_grad():
        x, p = images.x.flatten(1).double(), model(images.x).softmax(1).double()
    middle = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    closed = torch.einsum("nab,ni,nj->aibj", middle, x, x).reshape(4 * 64, 4 * 64) / 12
    result = top_eigenvalues(model, images, count=2, tolerance=1e-5)
    assert result.values == pytest.approx(np.linalg.eigvalsh(closed)[::-1][:2], rel=1e-4)


def test_no_number_hangs_on_how_images_are_cut_into_chunks_or_what_is_kept(monkeypatch):
    model, images = small_network(), make_images(25)
    vector = torch.randn(Hessian(model, images).size, generator=torch.Generator().manual_seed(0))
    whole = Hessian(model, images)(vector)
    monkeypatch.setattr(products, "CHUNK", 7)
    cut = Hessian(model, images)
    assert torch.allclose(cut(vector), whole, rtol=1e-4, atol=1e-6)
    assert torch.equal(cut(vector), cut(vector))
    monkeypatch.setattr(products, "KEPT_BYTES", 0)
    assert torch.allclose(Hessian(model, images)(vector), whole, rtol=1e-4, atol=1e-6)


def test_every_product_is_counted_and_the_residual_is_the_true_one(monkeypatch):
    model, images = small_network(), make_images(40)
    calls, vectors = [], []
    real, make_vector = Hessian.__call__, Krylov.vector
    monkeypatch.setattr(Hessian, "__call__", lambda self, v: calls.append(1) or real(self, v))
    monkeypatch.setattr(Krylov, "vector", lambda self, c: vectors.append(make_vector(self, c)) or vectors[-1])
    result = top_eigenvalues(model, images, tolerance=1e-2)
    assert result.products == len(calls)
    v, matrix = vectors[0].double().numpy(), dense_hessian(model, images)
    true = np.linalg.norm(matrix @ v - result.values[0] * v) / result.values[0]
    assert result.residual == pytest.approx(true, rel=0.02, abs=1e-5)


def test_an_unsettled_eigenvalue_is_a_lower_bound_and_says_so():
    model, images = small_network(), make_images(40)
    top = np.linalg.eigvalsh(dense_hessian(model, images))[-1]
    cut = top_eigenvalues(model, images, tolerance=1e-6, most=2)
    assert not cut.converged
    assert cut.products == 2
    assert cut.values[0] < top
    assert cut.estimate.note is not None
    assert cut.estimate.note.startswith("a lower bound")


def test_a_negative_eigenvalue_of_larger_size_is_not_the_largest():
    rng = torch.Generator().manual_seed(0)
    matrix = torch.diag(torch.tensor([-9.0, -8.0, 2.0, 1.0, 0.5]))
    krylov = Krylov(lambda v: matrix @ v, torch.randn(5, generator=rng), rng)
    while not krylov.exhausted:
        krylov.extend()
    values, _, left = krylov.ritz()
    assert values == pytest.approx([2, 1, 0.5, -8, -9], rel=1e-5)
    assert left.max() < 1e-4


def test_a_repeated_eigenvalue_is_found_as_often_as_it_occurs():
    rng = torch.Generator().manual_seed(0)
    krylov = Krylov(lambda v: 3 * v, torch.randn(6, generator=rng), rng)
    for _ in range(4):
        krylov.extend()
    assert krylov.ritz()[0] == pytest.approx([3, 3, 3, 3], rel=1e-5)


def test_the_model_and_its_mode_stay_as_they_were_and_dropout_is_off():
    model, images = make_model(), make_images(20)
    model.train()
    model[0].weight.requires_grad_(False)
    before = deepcopy(model.state_dict())
    first = top_eigenvalues(model, images)
    torch.manual_seed(99)
    assert top_eigenvalues(model, images) == first
    assert top_eigenvalues(deepcopy(model).eval().requires_grad_(False), images) == first
    input_curvature(model, images)
    trace(model, images, probes=6)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model[0].weight.requires_grad
    assert model[1].weight.requires_grad
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_the_interval_covers_the_eigenvalue_of_all_images_about_as_often_as_it_says():
    model = make_plain_model()
    population = make_images(3000, seed=5)
    truth = top_eigenvalues(model, population).values[0]
    covered = 0
    for seed in range(60):
        drawn = torch.randperm(3000, generator=torch.Generator().manual_seed(seed))[:100]
        estimate = top_eigenvalues(model, population[drawn]).estimate
        covered += estimate.low <= truth <= estimate.high
        assert estimate.n == 100
    assert covered >= 50


def test_one_image_has_no_interval():
    estimate = top_eigenvalues(make_plain_model(), make_images(1)).estimate
    assert (estimate.low, estimate.high) == (None, None)


def test_a_gradient_orthogonal_to_the_first_eigenvector_does_not_hide_it():
    """Two blocks of pixels: the bright one's weights carry the curvature, the dark one's the gradient."""
    x = torch.zeros(40, 1, 1, 2)
    x[:20, ..., 0], x[20:, ..., 1] = 1, 0.9
    # Half of the bright images have either label, so that their gradient vanishes at equal logits.
    y = torch.tensor([0, 1] * 10 + [0] * 20)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    nn.init.zeros_(model[1].weight)
    result = top_eigenvalues(model, Images(x, y, 2))
    assert result.values[0] == pytest.approx(20 / 40 * 0.5, rel=1e-4)  # 1/n sum x^2 times p(1 - p) times 2


def test_a_flat_loss_has_no_curvature():
    model = make_plain_model()
    with torch.no_grad():
        model[3].weight.zero_()
        model[3].bias[0], model[3].bias[1:] = 1e4, 0
    images = make_images(16)
    flat = top_eigenvalues(model, Images(images.x, torch.zeros(16, dtype=torch.int64), CLASSES))
    assert flat.values == (0.0,)
    assert flat.converged
    assert flat.residual == 0
    assert input_curvature(model, images).max() == 0


def test_more_products_than_parameters_are_not_taken():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, CLASSES, bias=False))
    images = make_images(10)
    result = top_eigenvalues(model, images, count=CLASSES, tolerance=1e-6)
    assert result.products == CLASSES
    assert result.values == pytest.approx(np.linalg.eigvalsh(dense_hessian(model, images))[::-1], abs=1e-6)


def test_what_cannot_be_measured_is_refused_in_one_line():
    model, images = make_plain_model(), make_images(8)
    broken = deepcopy(model)
    with torch.no_grad():
        broken[1].weight[0, 0] = torch.nan
    huge = deepcopy(model)
    with torch.no_grad():
        huge[1].weight.fill_(1e25)
        huge[3].weight.fill_(1e12)
    wordy = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    for call in (
        lambda: top_eigenvalues(broken, images),
        lambda: trace(broken, images),
        lambda: density(broken, images),
        lambda: input_curvature(broken, images),
        lambda: top_eigenvalues(huge, images),
        lambda: top_eigenvalues(model, images[:0]),
        lambda: top_eigenvalues(wordy, images),
        lambda: top_eigenvalues(nn.Flatten(), images),
        lambda: top_eigenvalues(model, images, count=0),
        lambda: top_eigenvalues(model, images, count=10**6, most=10**7),
        lambda: top_eigenvalues(model, images, tolerance=0),
        lambda: top_eigenvalues(model, images, count=3, most=2),
        lambda: trace(model, images, probes=1),
        lambda: density(model, images, steps=0),
        lambda: input_curvature(model, images, most=0),
    ):
        with pytest.raises(BadInput) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_the_trace_is_that_of_the_dense_hessian():
    model, images = small_network(), make_images(40)
    truth = np.trace(dense_hessian(model, images))
    estimates = [trace(model, images, probes=15, seed=seed) for seed in range(40)]
    assert sum(one.low <= truth <= one.high for one in estimates) >= 34
    values = np.array([one.value for one in estimates])
    assert abs(values.mean() - truth) <= 3 * values.std(ddof=1) / np.sqrt(40)
    every = trace(model, images, probes=3 * Hessian(model, images).size + 6)
    assert every.value == pytest.approx(truth, rel=1e-3)


def test_the_density_integrates_to_one_and_has_the_spectrums_mean_and_ends():
    model, images = small_network(), make_images(40)
    spectrum = np.linalg.eigvalsh(dense_hessian(model, images))
    result = density(model, images, probes=40, steps=20)
    assert np.trapezoid(result.values, result.grid) == pytest.approx(1, abs=1e-3)
    mean = np.trapezoid(result.values * result.grid, result.grid)
    spread = spectrum.std() / np.sqrt(40 * len(spectrum) / 2)
    assert abs(mean - spectrum.mean()) <= 4 * spread
    assert (result.values >= 0).all()
    assert result.grid[0] < spectrum[0] < spectrum[-1] < result.grid[-1]


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_input_curvature_is_the_largest_eigenvalue_of_each_images_dense_hessian(activation, monkeypatch):
    model, images = small_network(3, activation), make_images(10)
    double = deepcopy(model).double().eval()
    expected = []
    for x, y in zip(images.x.double(), images.y):
        matrix = hessian(lambda pixels, y=y: F.cross_entropy(double(pixels.view(1, 1, 8, 8)), y[None]))
        expected.append(torch.linalg.eigvalsh(matrix(x.flatten()))[-1].item())
    assert input_curvature(model, images, tolerance=1e-5) == pytest.approx(expected, rel=1e-4, abs=1e-7)
    monkeypatch.setattr("glasshouse.measures.curvature.pixels.CHUNK", 3)
    assert input_curvature(model, images, tolerance=1e-5) == pytest.approx(expected, rel=1e-4, abs=1e-7)

"""The networks: their sizes against published or hand-worked counts, and what every one of them must do."""

import copy
import pickle
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from glasshouse.errors import BadInput
from glasshouse.models import MODELS, build
from glasshouse.models.split import SplitNetwork
from glasshouse.models.vit import Attention, cut, patch_side

NAMES = tuple(MODELS)
SPLIT = ("cnn", "alexnet", "vgg", "resnet", "vit")
SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64))


def parameters(name: str, shape: tuple[int, int, int], classes: int) -> int:
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in build(name, shape, classes).parameters())


def small(name: str) -> tuple[int, int, int]:
    return (1, 9, 9) if name.startswith("convnet") else (1, 8, 8)


def seeded(name: str, shape: tuple[int, int, int], classes: int = 10) -> nn.Module:
    torch.manual_seed(3)
    return build(name, shape, classes)


def convolution(kernel: int, inputs: int, outputs: int, bias: bool = True) -> int:
    return kernel * kernel * inputs * outputs + bias * outputs


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def block(inputs: int, outputs: int) -> int:
    shortcut = convolution(1, inputs, outputs, bias=False) + 2 * outputs if inputs != outputs else 0
    convolutions = convolution(3, inputs, outputs, bias=False) + convolution(3, outputs, outputs, bias=False)
    return convolutions + 4 * outputs + shortcut


@pytest.mark.parametrize(
    ("name", "shape", "classes", "published"),
    [
        ("mlp", (1, 28, 28), 10, 199_210),
        ("lenet", (1, 28, 28), 10, 21_840),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("efficientnet-b0", (3, 224, 224), 1000, 5_288_548),
        ("efficientnet-b0", (3, 32, 32), 10, 4_020_358),
    ],
)
def test_parameter_counts_are_the_published_ones(name, shape, classes, published):
    assert parameters(name, shape, classes) == published


def test_the_ats_networks_have_the_millions_of_parameters_that_the_papers_give():
    assert round(parameters("resnet20-4", (3, 32, 32), 100) / 1e6, 2) == 4.35
    assert round(parameters("convnet", (3, 32, 32), 100) / 1e6, 1) == 3.1


def test_the_narrow_ats_networks_have_the_layers_of_the_wide_ones():
    stages = [(16, 16, 3), (16, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2)]
    resnet = convolution(3, 3, 16, bias=False) + 2 * 16 + linear(64, 100)
    resnet += sum(times * block(inputs, outputs) for inputs, outputs, times in stages)
    assert parameters("resnet20", (3, 32, 32), 100) == resnet
    widths = (3, 16, 32, 32, 64, 64, 64, 64, 64)
    convnet = linear(64 * 9, 100) + sum(
        convolution(3, inputs, outputs) + 2 * outputs for inputs, outputs in pairwise(widths)
    )
    assert parameters("convnet-16", (3, 32, 32), 100) == convnet


def test_the_batch_robustness_networks_follow_their_table():
    m1 = convolution(5, 1, 20) + convolution(5, 20, 20) + linear(20 * 20 * 20, 500) + linear(500, 10)
    stdcnn = convolution(3, 1, 10) + convolution(3, 10, 10) + convolution(3, 10, 20) + convolution(3, 20, 20)
    stdcnn += linear(20 * 4 * 4, 50) + linear(50, 10)
    c1 = convolution(5, 3, 64) + convolution(5, 64, 64) + 2 * 2 * 64
    c1 += linear(64 * 8 * 8, 384) + linear(384, 192) + linear(192, 10)
    assert parameters("m1", (1, 28, 28), 10) == m1
    assert parameters("stdcnn", (1, 28, 28), 10) == stdcnn
    assert parameters("c1", (3, 32, 32), 10) == c1


def test_the_scale_mia_networks_follow_their_tables():
    cnn = convolution(4, 3, 12) + convolution(4, 12, 32) + convolution(4, 32, 64)
    cnn += linear(4 * 4 * 64, 1024) + linear(1024, 512) + linear(512, 10)
    alexnet = convolution(3, 3, 64) + convolution(3, 64, 192) + convolution(3, 192, 384)
    alexnet += convolution(3, 384, 256) + convolution(3, 256, 256)
    alexnet += linear(4 * 4 * 256, 512) + linear(512, 120) + linear(120, 10)
    vgg = (
        convolution(3, 3, 64) + convolution(3, 64, 128) + convolution(3, 128, 256) + convolution(3, 256, 256)
    )
    vgg += convolution(3, 256, 512) + 3 * convolution(3, 512, 512) + 2 * (64 + 128 + 2 * 256 + 4 * 512)
    vgg += linear(4 * 4 * 512, 1024) + linear(1024, 200) + linear(200, 10)
    resnet = convolution(3, 3, 32, bias=False) + 2 * 32 + block(32, 32) + block(32, 32)
    for inputs, outputs in ((32, 64), (64, 128), (128, 256)):
        resnet += block(inputs, outputs) + block(outputs, outputs)
    resnet += linear(4 * 4 * 256, 512) + linear(512, 10)
    attention = 2 * 512 + 512 * 3 * 512 + linear(512, 512)
    hidden = 2 * 512 + 2 * linear(512, 512)
    vit = 2 * 192 + linear(8 * 8 * 3, 512) + 2 * 512 + 512 + (1 + 16) * 512 + 6 * (attention + hidden)
    vit += linear(512, 512) + linear(512, 10)
    counted = {name: parameters(name, (3, 32, 32), 10) for name in SPLIT}
    assert counted == {"cnn": cnn, "alexnet": alexnet, "vgg": vgg, "resnet": resnet, "vit": vit}


def test_the_networks_of_the_closed_forms_follow_their_descriptions():
    widths = ((4, 3, 12), (3, 12, 36), (3, 36, 36), (3, 36, 36), (3, 36, 64), (3, 64, 128))
    cnn6 = sum(convolution(*sizes, bias=False) for sizes in widths) + 128 * 5 * 5 * 10
    attention = 384 * 3 * 384 + linear(384, 384)
    rest = 2 * 2 * 384 + attention + 2 * linear(384, 384)
    april = linear(4 * 4 * 3, 384) + 384 + 65 * 384 + attention + 3 * rest + 2 * 384 + linear(384, 10)
    assert parameters("cnn6", (3, 32, 32), 10) == cnn6
    assert parameters("april-vit", (3, 32, 32), 10) == april


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_network_gives_logits_or_says_which_size_it_needs(name, shape):
    if name.startswith("convnet") and shape[1] < 9:
        with pytest.raises(BadInput, match=rf"'{name}' cannot take 8x8 images.*9x9.*'lenet'"):
            build(name, shape, 7)
        return
    model = seeded(name, shape, 7).eval()
    with torch.no_grad():
        logits = model(torch.rand(2, *shape))
    assert logits.shape == (2, 7)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_sides_may_differ_and_be_odd(name):
    shape = (2, 21, 18)
    model = seeded(name, shape, 3).eval()
    with torch.no_grad():
        assert model(torch.rand(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("name", SPLIT)
def test_scale_mia_networks_split_into_a_flat_latent_and_linear_layers(name):
    first = {"cnn": 1024, "alexnet": 512, "vgg": 1024, "resnet": 512, "vit": 512}[name]
    latent = {
        "cnn": (64, 4, 4),
        "alexnet": (256, 4, 4),
        "vgg": (512, 4, 4),
        "resnet": (256, 4, 4),
        "vit": (512,),
    }
    model = seeded(name, (3, 32, 32)).eval()
    assert isinstance(model, SplitNetwork)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        codes = model.encoder(x)
        assert torch.equal(model.head(codes), model(x))
    assert model.latent == latent[name]
    assert codes.shape == (2, torch.Size(model.latent).numel())
    assert model.head[0].weight.shape == (first, codes.shape[1])
    assert all(isinstance(layer, nn.Linear | nn.ReLU) for layer in model.head)
    assert isinstance(model.head[-1], nn.Linear)
    if name != "vit":
        assert codes.min() >= 0


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_the_weights_and_copies_agree(name):
    model = seeded(name, small(name)).eval()
    again = seeded(name, small(name)).eval()
    x = torch.rand(2, *small(name))
    with torch.no_grad():
        logits = model(x)
        assert torch.equal(logits, again(x))
        assert torch.equal(logits, copy.deepcopy(model)(x))
        assert torch.equal(logits, pickle.loads(pickle.dumps(model))(x))


@pytest.mark.parametrize("name", NAMES)
def test_channels_last_changes_nothing(name):
    shape = (3, *small(name)[1:])
    model = seeded(name, shape).double().eval()
    x = torch.rand(2, *shape, dtype=torch.float64)
    with torch.no_grad():
        plain = model(x)
        last = model.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_a_gradient_agrees_with_finite_differences(name):
    """Gradient matching differentiates the squared norm of the weights' gradient by the image."""
    model = seeded(name, small(name)).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    # One batch sets the statistics, without which an untrained deep network hardly sees its image.
    model(torch.rand(16, *small(name), dtype=torch.float64))
    model.eval()
    weights = list(model.parameters())
    y = torch.tensor([1, 4])

    def squared_norm(x: Tensor, create_graph: bool = False) -> Tensor:
        loss = functional.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, weights, create_graph=create_graph)
        return torch.stack([gradient.square().sum() for gradient in gradients]).sum()

    x = torch.rand(2, *small(name), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(squared_norm(x, create_graph=True), x)
    assert slope.norm() > 1e-6
    along = slope / slope.norm() * 1e-6
    rise = (squared_norm(x + along) - squared_norm(x - along)) / 2e-6
    torch.testing.assert_close(rise, slope.norm(), rtol=1e-3, atol=1e-9)


def test_lenet_pools_before_relu_and_computes_what_the_printed_order_does():
    model = seeded("lenet", (1, 28, 28))
    first, second = (layer for layer in model if isinstance(layer, nn.Conv2d))
    hidden, out = (layer for layer in model if isinstance(layer, nn.Linear))
    x = torch.randn(5, 1, 28, 28)
    printed = functional.max_pool2d(
        functional.relu(second(functional.max_pool2d(functional.relu(first(x)), 2))), 2
    )
    assert torch.equal(model(x), out(functional.relu(hidden(printed.flatten(1)))))


def test_attention_agrees_with_the_one_in_torch():
    torch.manual_seed(0)
    ours, theirs = Attention(), nn.MultiheadAttention(512, 8, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.queries_keys_values.weight)
        theirs.in_proj_bias.zero_()
    theirs.out_proj = ours.out
    x = torch.randn(2, 17, 512)
    torch.testing.assert_close(ours(x), theirs(x, x, x, need_weights=False)[0], rtol=1e-4, atol=1e-5)


def test_patches_are_cut_row_by_row():
    x = torch.rand(2, 3, 4, 6)
    patches = cut(x, 2)
    assert patches.shape == (2, 6, 12)
    assert torch.equal(patches[1, 4], x[1, :, 2:4, 2:4].permute(1, 2, 0).flatten())


@pytest.mark.parametrize(("side", "patch"), [(32, 8), (28, 7), (8, 2), (64, 8), (31, 1), (3, 1)])
def test_the_patch_divides_the_image(side, patch):
    assert patch_side((1, side, side)) == patch


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_described_in_one_line(name):
    first = MODELS.load(name).__doc__.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 110


def test_unknown_names_get_the_nearest_one():
    with pytest.raises(BadInput, match=r"unknown model 'resnet-18'; did you mean 'resnet18'\?"):
        build("resnet-18", (3, 32, 32), 10)


@pytest.mark.parametrize(
    "shape", [(28, 28), (0, 8, 8), (1, 8, -8), (1, 8.0, 8), (True, 8, 8), ("1", 8, 8), 28, None]
)
def test_bad_shapes_are_refused(shape):
    with pytest.raises(BadInput, match=r"channels, height and width"):
        build("mlp", shape, 10)


def test_a_shape_with_channels_last_is_recognised():
    with pytest.raises(BadInput, match=r"channels come first: write \(3, 32, 32\)"):
        build("mlp", (32, 32, 3), 10)


@pytest.mark.parametrize("classes", [1, 0, -3, 2.0, True, None])
def test_fewer_than_two_classes_are_refused(classes):
    with pytest.raises(BadInput, match="at least 2"):
        build("mlp", (1, 8, 8), classes)


@pytest.mark.parametrize(
    ("name", "least"),
    [("lenet", 4), ("stdcnn", 4), ("cnn", 8), ("vgg", 8), ("convnet", 9), ("convnet-16", 9)],
)
def test_the_smallest_side_is_the_one_the_error_names(name, least):
    build(name, (1, least, least), 2)
    with pytest.raises(BadInput, match=rf"{least}x{least}; use model '(\w+)'") as refused:
        build(name, (1, least - 1, least), 2)
    smaller = str(refused.value).split("use model '")[1].split("'")[0]
    assert build(smaller, (1, least - 1, least), 2)(torch.zeros(2, 1, least - 1, least)).shape == (2, 2)


def test_the_names_can_be_listed_without_torch():
    code = "import sys; from glasshouse.models.registry import MODELS; print(*MODELS, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*NAMES, "False"]

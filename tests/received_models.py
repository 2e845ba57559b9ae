"""Models as a client may receive them: crafted to leak in each known way, disguised, or honest but odd."""

import math
from copy import deepcopy

import torch
from torch import Tensor, nn

from glasshouse.models import build
from glasshouse.models.split import SplitNetwork

SHAPE = (1, 16, 16)
"""The images of a received model, unless a test says otherwise."""


def network(name, seed=0, classes=10, shape=SHAPE):
    """An honest network of the zoo as it starts."""
    torch.manual_seed(seed)
    return build(name, shape, classes)


def natural_images(count: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    """Stand-ins for photographs: smooth blobs of varying brightness, (count, C, H, W) in [0, 1]."""
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, shape[0], 4, 4, generator=rng)
    smooth = nn.functional.interpolate(coarse, size=shape[1:], mode="bicubic")
    level = torch.randn(count, 1, 1, 1, generator=rng)
    return (0.5 + 0.15 * level + 0.2 * smooth).clamp(0, 1)


@torch.no_grad()
def scale_mia(
    network: SplitNetwork, images: Tensor, *, directions: int = 1, scale: float = 1.0, seed: int = 0
):
    """Scale-MIA on a copy of `network`: the head's first layer sorts latents by `directions` features."""
    model = deepcopy(network).eval()
    rng = torch.Generator().manual_seed(seed)
    latents = model.encoder(images)
    first, second = _linears(model.head)[:2]
    set_staircase(first, latents, directions, scale, rng)
    set_equal_columns(second, scale, rng)
    return model


@torch.no_grad()
def set_staircase(
    layer: nn.Linear, inputs: Tensor, directions: int, scale: float, rng: torch.Generator
) -> None:
    """Let groups of rows measure one feature each, with thresholds at its quantiles over `inputs` (N, d)."""
    rows, width = layer.weight.shape
    for number, group in enumerate(torch.arange(rows).chunk(directions)):
        # The first feature is the mean, as the paper has it; the others are random positive mixtures.
        direction = torch.ones(width) if number == 0 else torch.rand(width, generator=rng)
        direction = direction / direction.sum()
        shares = torch.linspace(0.001, 0.999, len(group))
        layer.weight[group] = scale * direction
        layer.bias[group] = -scale * torch.quantile(inputs @ direction, shares)


@torch.no_grad()
def set_equal_columns(layer: nn.Linear, scale: float, rng: torch.Generator) -> None:
    """Weigh all inputs of `layer` alike, each output in its own way."""
    outputs, inputs = layer.weight.shape
    layer.weight[:] = torch.randn(outputs, 1, generator=rng).abs() / (inputs * min(scale, 1.0))
    layer.bias[:] = 0.1


class Imprint(nn.Module):
    """Robbing the Fed's block: pixels, k bins by brightness, and back to pixels, before a `network`."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int], bins: int) -> None:
        super().__init__()
        pixels = math.prod(shape)
        self.shape = shape
        self.bins, self.back = nn.Linear(pixels, bins), nn.Linear(bins, pixels)
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.network(self.back(self.bins(x.flatten(1)).relu()).unflatten(1, self.shape))
        return out


def robbing(
    network: nn.Module, images: Tensor, *, bins: int = 256, scale: float = 1.0, seed: int = 0
) -> Imprint:
    """Robbing the Fed before a copy of `network`."""
    model = Imprint(deepcopy(network), tuple(images.shape[1:]), bins)
    rng = torch.Generator().manual_seed(seed)
    set_staircase(model.bins, images.flatten(1), 1, scale, rng)
    set_equal_columns(model.back, scale, rng)
    return model


class Slots(nn.Module):
    """LOKI's front: a convolution with a slot of channels for each client, an imprint, then `network`."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int], clients: int, bins: int) -> None:
        super().__init__()
        self.shape = shape
        pixels = math.prod(shape)
        self.slots = nn.Conv2d(shape[0], clients * shape[0], 3, padding=1)
        self.bins, self.back = nn.Linear(clients * pixels, bins), nn.Linear(bins, pixels)
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.bins(self.slots(x).relu().flatten(1)).relu()
        out: Tensor = self.network(self.back(hidden).unflatten(1, self.shape))
        return out


@torch.no_grad()
def loki(
    network: nn.Module, images: Tensor, *, clients: int = 4, client: int = 1, bins: int = 128, seed: int = 0
):
    """LOKI's model for one client: its slot carries the image, the others are zero."""
    channels = images.shape[1]
    model = Slots(deepcopy(network), tuple(images.shape[1:]), clients, bins)
    rng = torch.Generator().manual_seed(seed)
    for parameter in model.slots.parameters():
        parameter.zero_()
    for channel in range(channels):
        model.slots.weight[client * channels + channel, channel, 1, 1] = 1
    set_staircase(model.bins, model.slots(images).flatten(1), 1, 1.0, rng)
    set_equal_columns(model.back, 1.0, rng)
    return model


@torch.no_grad()
def class_fishing(network: nn.Module, *, target: int = 0, row: float = 0.5, bias: float = 1000.0):
    """Fishing for a class: only the target's row is live, the others answer by their biases alone."""
    model = deepcopy(network)
    head = _linears(model)[-1]
    kept = head.weight[target] * row
    head.weight.zero_()
    head.weight[target] = kept
    head.bias.fill_(bias)
    head.bias[target] = 0
    return model


@torch.no_grad()
def feature_fishing(
    network: nn.Module, images: Tensor, *, target: int = 0, steepness: float = 300.0, seed: int = 0
):
    """Fishing for a feature: the target's row tests one feature of the last layer's input steeply."""
    model = deepcopy(network).eval()
    head = _linears(model)[-1]
    features: list[Tensor] = []
    watch = head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
    model(images)
    watch.remove()
    place = int(features[0].std(0).argmax())
    middle, spread = features[0][:, place].median(), features[0][:, place].std()
    head.weight.zero_()
    head.bias.zero_()
    head.weight[target, place] = steepness / spread
    head.bias[target] = -steepness / spread * middle
    return model


@torch.no_grad()
def eluding(network: nn.Module, *, depth: float = 1000.0):
    """Eluding secure aggregation: what non-targets get, with a layer before a ReLU that nothing passes."""
    model = deepcopy(network)
    hidden = _linears(model)[:-1] or [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]
    hidden[-1].bias.fill_(-depth)
    return model


@torch.no_grad()
def saturated_head(network: nn.Module, *, bias: float = 1000.0):
    """A network of zeros that always answers class 0."""
    model = deepcopy(network)
    for parameter in model.parameters():
        parameter.zero_()
    _linears(model)[-1].bias[0] = bias
    return model


@torch.no_grad()
def disguised(
    model: nn.Module, layer: str, after: str, *, noise: float = 0.01, honest: float = 0.0, seed: int = 0
):
    """Permute the neurons between two linear layers, scale and blur them, put honest ones in their place."""
    model = deepcopy(model)
    rng = torch.Generator().manual_seed(seed)
    first, second = model.get_submodule(layer), model.get_submodule(after)
    rows = len(first.weight)
    blur = torch.randn(first.weight.shape, generator=rng)
    blur *= noise * first.weight.norm(dim=1, keepdim=True) / blur.norm(dim=1, keepdim=True)
    first.weight += blur
    blur = torch.randn(second.weight.shape, generator=rng)
    second.weight *= 1 + noise * blur
    factors = torch.exp(torch.randn(rows, generator=rng))
    first.weight *= factors[:, None]
    first.bias *= factors
    second.weight /= factors
    order = torch.randperm(rows, generator=rng)
    first.weight[:], first.bias[:] = first.weight[order], first.bias[order]
    second.weight[:] = second.weight[:, order]
    fresh, next_fresh = nn.Linear(first.in_features, rows), nn.Linear(rows, second.out_features)
    count = int(honest * rows)
    first.weight[:count], first.bias[:count] = fresh.weight[:count], fresh.bias[:count]
    second.weight[:, :count] = next_fresh.weight[:, :count]
    return model


@torch.no_grad()
def pruned(model: nn.Module, fraction: float):
    """A copy whose weight tensors keep only their largest entries."""
    model = deepcopy(model)
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            entries = parameter.view(-1)
            drop = int(fraction * entries.numel())
            entries[entries.abs().topk(drop, largest=False).indices] = 0
    return model


def _linears(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]

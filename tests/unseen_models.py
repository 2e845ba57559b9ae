"""Crafted models of kinds that the vetting was not built on: none of its thresholds was chosen by them.

Each craft takes the honest model of a round and images that the server holds, and returns what it sends in
its place. What is crafted is that model, so much of it is as honest as before.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
import torch.nn.functional as F
from received_models import class_fishing, eluding, feature_fishing
from torch import Tensor, nn

from glasshouse.data.images import Images

Craft = Callable[[nn.Module, Images, int], nn.Module]


def linears(model: nn.Module) -> list[nn.Linear]:
    return [part for part in model.modules() if isinstance(part, nn.Linear)]


def entering(model: nn.Module, layer: nn.Module, x: Tensor) -> Tensor:
    """What enters `layer` when images pass, (N, d)."""
    found: list[Tensor] = []
    watch = layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].detach()))
    with torch.no_grad():
        model.eval()(x)
    watch.remove()
    return found[0].flatten(1)


def some_rows(layer: nn.Linear, share: float, rng: torch.Generator) -> Tensor:
    """The positions of a `share` of the rows."""
    return torch.randperm(len(layer.weight), generator=rng)[: max(1, int(share * len(layer.weight)))]


@torch.no_grad()
def trap_weights(
    model: nn.Module,
    images: Images,
    seed: int,
    *,
    scale: float = 0.97,
    share: float = 1.0,
    noise: float = 0.0,
) -> nn.Module:
    """Boenisch et al.: half of a row's entries negative, the others the same times -scale, shuffled."""
    model, rng = deepcopy(model), torch.Generator().manual_seed(seed)
    layer = linears(model)[0]
    inputs = layer.in_features
    for row in some_rows(layer, share, rng).tolist():
        order = torch.randperm(inputs, generator=rng)
        negative = -torch.randn(inputs // 2, generator=rng).abs() * float(layer.weight[row].std())
        entries = torch.zeros(inputs)
        entries[order[: inputs // 2]] = negative
        entries[order[inputs // 2 : inputs // 2 * 2]] = -scale * negative
        entries += noise * float(entries.std()) * torch.randn(inputs, generator=rng)
        layer.weight[row] = entries
        if layer.bias is not None:
            layer.bias[row] = 0
    return model


@torch.no_grad()
def rare_by_bias(
    model: nn.Module, images: Images, seed: int, *, fires: float = 0.02, share: float = 1.0
) -> nn.Module:
    """Curious abandon without pairs: honest rows, with biases that let a few of the images pass."""
    model, rng = deepcopy(model), torch.Generator().manual_seed(seed)
    layer = linears(model)[0]
    outputs = entering(model, layer, images.x) @ layer.weight.T
    rows = some_rows(layer, share, rng)
    layer.bias[rows] = -torch.quantile(outputs[:, rows], 1 - fires, dim=0)
    return model


@torch.no_grad()
def brightness_gate(
    model: nn.Module, images: Images, seed: int, *, fires: float = 0.02, leak: float = 0.0
) -> nn.Module:
    """Suppression that depends on the image: the layer before the last is shut but for the brightest.

    All its neurons measure, beside what they did, one direction of their input; a share `leak` stays open.
    """
    model, rng = deepcopy(model), torch.Generator().manual_seed(seed)
    layer = linears(model)[-2]
    inputs = entering(model, layer, images.x)
    bright = images.x.mean((1, 2, 3))
    centred = (bright - bright.mean())[:, None]
    # "gelsy", which is the default, has no fixed answer where neurons are silent on all images
    direction = torch.linalg.lstsq(inputs - inputs.mean(0), centred, driver="gelsd").solution[:, 0]
    measured = inputs @ direction
    strength = 10 * float((inputs @ layer.weight.T).std() / measured.std())
    threshold = torch.quantile(measured, 1 - fires)
    shut = torch.ones(len(layer.weight)).bool()
    shut[some_rows(layer, leak, rng)] = leak == 0
    layer.weight[shut] += strength * direction
    layer.bias[shut] -= strength * threshold
    return model


def suppressed(model: nn.Module, images: Images, seed: int, *, depth: float = 1.0) -> nn.Module:
    """Eluding's dead layer, only a little below what the images reach."""
    return eluding(model, depth=depth)


def faint_fishing(
    model: nn.Module, images: Images, seed: int, *, bias: float = 6.0, row: float = 0.5, rest: float = 0.01
) -> nn.Module:
    """Fishing for a class with small constants: the other rows are faint instead of zero."""
    kept = linears(model)[-1].weight.detach().clone()
    target = seed % images.classes
    crafted = class_fishing(model, target=target, row=row, bias=bias)
    with torch.no_grad():
        others = torch.arange(images.classes) != target
        linears(crafted)[-1].weight[others] = rest * kept[others]
    return crafted


def soft_feature(model: nn.Module, images: Images, seed: int, *, steepness: float = 20.0) -> nn.Module:
    """Fishing for a feature with a gentler step."""
    target = seed % images.classes
    return feature_fishing(model, images.x, target=target, steepness=steepness, seed=seed)


@torch.no_grad()
def imprint(
    model: nn.Module,
    images: Images,
    seed: int,
    *,
    share: float = 1.0,
    directions: int = 1,
    law: str = "empirical",
    tilt: float = 0.0,
    outgoing: float = 1.0,
) -> nn.Module:
    """Bins in the first linear layer the model has: rows of some random directions, in `share` of the layer.

    Thresholds follow the images, or a Laplace or uniform law; each row is tilted by `tilt` of its length, and
    the next layer takes what they give times `outgoing`.
    """
    model, rng = deepcopy(model), torch.Generator().manual_seed(seed)
    layer, after = linears(model)[:2]
    inputs = entering(model, layer, images.x)
    length = float(layer.weight.norm(dim=1).mean())
    for rows in some_rows(layer, share, rng).chunk(directions):
        direction = torch.randn(layer.in_features, generator=rng)
        direction *= length / direction.norm()
        tilted = direction + tilt * length * F.normalize(
            torch.randn(len(rows), layer.in_features, generator=rng), dim=1
        )
        measured = inputs @ direction
        shares = torch.linspace(0.005, 0.995, len(rows))
        if law == "laplace":
            middle, spread = measured.median(), measured.std() / math.sqrt(2)
            steps = middle - spread * (shares - 0.5).sign() * torch.log1p(-2 * (shares - 0.5).abs())
        elif law == "uniform":
            steps = measured.min() + shares * (measured.max() - measured.min())
        else:
            steps = torch.quantile(measured, shares)
        layer.weight[rows], layer.bias[rows] = tilted, -steps
        if after.in_features == len(layer.weight):
            mean = after.weight[:, rows].abs().mean(1, keepdim=True)
            after.weight[:, rows] = outgoing * mean
    return model


@torch.no_grad()
def pixel_bins(model: nn.Module, images: Images, seed: int, *, share: float = 1.0, few: int = 4) -> nn.Module:
    """Each neuron looks at a few inputs of its own, at a threshold that one image in fifty passes."""
    model, rng = deepcopy(model), torch.Generator().manual_seed(seed)
    layer = linears(model)[0]
    inputs = entering(model, layer, images.x)
    live = (inputs.std(0) > 0.1 * inputs.std()).nonzero()[:, 0]
    length = float(layer.weight.norm(dim=1).mean())
    for row in some_rows(layer, share, rng).tolist():
        chosen = live[torch.randperm(len(live), generator=rng)[:few]]
        layer.weight[row] = 0
        layer.weight[row, chosen] = length / math.sqrt(few)
        layer.bias[row] = -torch.quantile(inputs @ layer.weight[row], 0.98)
    return model


def loud_image(model: nn.Module, images: Images, seed: int, *, steps: int = 150) -> nn.Module:
    """Trained, beside its task, to make the brightest image of a batch the gradient of the last layers.

    After SEER's aim and without its secret decoder: what the others add before the last layer is penalised
    in the open gradient, so the sum shows one image. The last layer's input is |d features| per unit error.
    """
    model = deepcopy(model).train()
    outputs: list[Tensor] = []
    watch = linears(model)[-2].register_forward_hook(lambda *passed: outputs.append(passed[2]))
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randint(len(images), (32,), generator=rng)
        x, y = images.x[batch], images.y[batch]
        outputs.clear()
        loss = F.cross_entropy(model(x), y, reduction="none")
        slopes = torch.autograd.grad(loss.sum(), outputs[0], create_graph=True)[0]
        lengths = slopes.flatten(1).norm(dim=1)
        target = x.mean((1, 2, 3)).argmax()
        others = (lengths.sum() - lengths[target]) / (lengths[target] + 1e-3)
        optimiser.zero_grad()
        (loss.mean() + 0.1 * others).backward()
        optimiser.step()
    watch.remove()
    return model.eval()


def secret_decoder(
    model: nn.Module, images: Images, seed: int, *, steps: int = 200, entries: int = 512
) -> nn.Module:
    """SEER (Garov et al. 2024) in small: the model is trained with a secret linear map of its gradient.

    The map sends to zero what a batch's other images add and keeps what the brightest adds, so the gradient
    itself stays ordinary in every norm. `entries` of the gradient are used; the paper uses a share, too.
    """
    model = deepcopy(model).train()
    rng = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    sizes = [part.numel() for part in parameters.values()]
    chosen = torch.randperm(sum(sizes), generator=rng)[: min(entries, sum(sizes))]
    torch.manual_seed(seed)
    decoder = nn.Linear(len(chosen), 64, bias=False)
    pixels = nn.Linear(64, images.x[0].numel())
    optimiser = torch.optim.Adam([*model.parameters(), *decoder.parameters(), *pixels.parameters()], 1e-3)

    def gradient(losses: Tensor) -> Tensor:
        parts = torch.autograd.grad(losses.sum(), list(parameters.values()), create_graph=True)
        return torch.cat([part.flatten() for part in parts])[chosen]

    for _ in range(steps):
        batch = torch.randint(len(images), (16,), generator=rng)
        x, y = images.x[batch], images.y[batch]
        losses = F.cross_entropy(model(x), y, reduction="none")
        target = int(x.mean((1, 2, 3)).argmax())
        others = torch.arange(16) != target
        kept, nulled = decoder(gradient(losses[target])), decoder(gradient(losses[others]))
        rebuilt = F.mse_loss(pixels(kept + nulled), x[target].flatten())
        silent = nulled.norm() / (kept.norm() + 1e-6)
        optimiser.zero_grad()
        (losses.mean() + rebuilt + 0.1 * silent).backward()
        optimiser.step()
    return model.eval()


CRAFTS: dict[str, Craft] = {
    "trap weights": trap_weights,
    "trap weights, factor 0.9": partial(trap_weights, scale=0.9),
    "trap weights, noise of 20%": partial(trap_weights, noise=0.2),
    "trap weights in a fourth of the rows": partial(trap_weights, share=0.25),
    "rare neurons by biases": rare_by_bias,
    "rare neurons in a fourth of the rows": partial(rare_by_bias, share=0.25),
    "gate for bright images": brightness_gate,
    "gate that leaves 10% open": partial(brightness_gate, leak=0.1),
    "layer shut by 1": suppressed,
    "layer shut by 0.3": partial(suppressed, depth=0.3),
    "class fishing, biases of 6": faint_fishing,
    "class fishing, biases of 3, rows of 5%": partial(faint_fishing, bias=3.0, rest=0.05),
    "feature fishing, step of 20": soft_feature,
    "feature fishing, step of 5": partial(soft_feature, steepness=5.0),
    "imprint, random direction": imprint,
    "imprint, laplace": partial(imprint, law="laplace"),
    "imprint, uniform, rows tilted by 50%": partial(imprint, law="uniform", tilt=0.5),
    "imprint, 16 directions": partial(imprint, directions=16),
    "imprint in a fourth of the rows": partial(imprint, share=0.25),
    "imprint in 5% of the rows, faint": partial(imprint, share=0.05, outgoing=0.01),
    "bins of four inputs": pixel_bins,
    "bins of four inputs, a fourth of the rows": partial(pixel_bins, share=0.25),
    "trained for one loud image": loud_image,
    "secret decoder (SEER in small)": secret_decoder,
}
"""Each kind by name."""

STEALTHY = (
    "imprint in a fourth of the rows",
    "trap weights in a fourth of the rows",
    "rare neurons in a fourth of the rows",
    "gate for bright images",
)
"""Those that a server also brings about a tenth of the way in each round, so that no round changes much."""


def part_way(honest: nn.Module, crafted: nn.Module, share: float) -> nn.Module:
    """The weights that lie a `share` of the way from `honest` to `crafted`."""
    model = deepcopy(honest)
    with torch.no_grad():
        for part, end in zip(model.parameters(), crafted.parameters()):
            part.lerp_(end, share)
    return model


BUILT_FOR = ("trap weights", "trap weights, factor 0.9")
"""Those that a sign names: the others vary them, or are of another family."""

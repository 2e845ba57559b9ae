"""Hessian-vector products written out for plain networks of layers, after Pearlmutter (1994).

Between its weighted layers such a network applies maps that are linear around each image: the branch that a
ReLU or a pooling took. With a the input of a weighted layer, z its output, d the derivative of the loss by z,
and R the derivative along a direction V in the weights W:

    forward    R{z} = W R{a} + V a
    backward   R{dL/da} = W' R{d} + V' d    and    R{dL/dW} = R{d} a' + d R{a}'

a and d do not depend on V: they are kept from one product to the next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.learning.cpu import channels_last

aten = torch.ops.aten

IN_SPACE = (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d)
"""Layers that take pictures, where `nn.Linear` takes rows."""

Map = Callable[[Tensor], Tensor]
"""A linear map, which may write into its argument."""


def plain(model: nn.Module) -> bool:
    """Whether `model` is nothing but known layers in a row, none used twice."""
    layers = list(leaves(model))
    flat = False
    for layer in layers:
        misplaced = isinstance(layer, IN_SPACE) if flat else type(layer) is nn.Linear
        if misplaced or not _known(layer):
            return False
        flat = flat or type(layer) is nn.Flatten
    owned = [id(parameter) for layer in layers for parameter in layer.parameters()]
    return bool(owned) and len(set(owned)) == len(owned)


def leaves(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of a network of nested rows, in their order."""
    if type(model) is nn.Sequential and not _hooked(model):
        for part in model:
            yield from leaves(part)
    else:
        yield model


class LayeredChunk:
    """The summed loss of some images around one state of a plain network, ready for products with vectors.

    `layers` are the `leaves` of a `plain` network, and directions and products have the order of its
    parameters; `x` has shape (N, C, H, W), `y` shape (N,).
    """

    @torch.no_grad()
    def __init__(self, layers: Sequence[nn.Module], x: Tensor, y: Tensor) -> None:
        self._steps: list[_Step] = []
        a = x
        for layer in layers:
            if isinstance(layer, nn.BatchNorm2d):
                a, there, back = _normalised(layer, a)
                self._follow(there, back)
            if isinstance(layer, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
                self._steps.append(_Step(layer, a))
                a = _run(layer, a, layer.weight, layer.bias)
            else:
                a, there, back = _mapped(layer, a)
                self._follow(there, back)
        self._share = a.softmax(1)
        d = self._share - F.one_hot(y, a.shape[1])
        for step in reversed(self._steps):
            step.d = d = step.pull(d)
            if step is not self._steps[0]:
                d = _to_input(step.layer, d, step.a, step.layer.weight)

    @property
    def held(self) -> int:
        """The bytes that are kept, about: inputs, derivatives and the branches taken."""
        return 3 * sum(step.a.numel() * step.a.element_size() for step in self._steps)

    @torch.no_grad()
    def gradient(self) -> list[Tensor]:
        """The derivative of the summed loss by each parameter."""
        return [piece for step in self._steps for piece in _to_weights(step.layer, step.d, step.a)]

    @torch.no_grad()
    def product(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """The Hessian of the summed loss times `directions`, one tensor for each parameter."""
        inputs, bends, rz = self._forward(directions)
        rd = self._share * (rz - (self._share * rz).sum(1, keepdim=True))
        products: list[Tensor] = []
        for step, ra, (v, _) in zip(reversed(self._steps), reversed(inputs), reversed(bends)):
            rd = step.pull(rd)
            pieces = _to_weights(step.layer, rd, step.a)
            if ra is not None:
                pieces[0] += _to_weights(step.layer, step.d, ra)[0]
                rd = _to_input(step.layer, rd, step.a, step.layer.weight)
                rd += _to_input(step.layer, step.d, ra, v)
            products = pieces + products
        return products

    @torch.no_grad()
    def along(self, directions: Sequence[Tensor]) -> Tensor:
        """The second derivative of each image's loss along `directions`, shape (N,).

        R{R{z}} = W R{R{a}} + 2 V R{a}: what each layer adds reaches the loss through its own d.
        """
        inputs, bends, rz = self._forward(directions)
        mean = (self._share * rz).sum(1)
        second = (self._share * rz**2).sum(1) - mean**2
        for step, ra, (v, _) in zip(self._steps, inputs, bends):
            if ra is not None:
                second += 2 * (step.d * _run(step.layer, ra, v, None)).flatten(1).sum(1)
        return second

    def _forward(
        self, directions: Sequence[Tensor]
    ) -> tuple[list[Tensor | None], list[tuple[Tensor, Tensor | None]], Tensor]:
        """R{a} of each step, None for 0; the directions of its weight and bias; and R{logits}."""
        remaining = iter(directions)
        inputs: list[Tensor | None] = []
        bends = []
        ra: Tensor | None = None
        for step in self._steps:
            v, bias = next(remaining), None if step.layer.bias is None else next(remaining)
            v = channels_last(v) if v.ndim == 4 else v
            inputs.append(ra)
            bends.append((v, bias))
            rz = _run(step.layer, step.a, v, bias)
            if ra is not None:
                rz += _run(step.layer, ra, step.layer.weight, None)
            ra = step.push(rz)
        assert ra is not None
        return inputs, bends, ra

    def _follow(self, there: Map, back: Map) -> None:
        if self._steps:  # before the first weights nothing moves
            self._steps[-1].maps.append((there, back))


@dataclass
class _Step:
    """A weighted layer with its input and the derivative by its output, and the maps that follow it."""

    layer: nn.Conv2d | nn.Linear | nn.BatchNorm2d
    a: Tensor
    d: Tensor = field(default_factory=lambda: torch.empty(0))
    maps: list[tuple[Map, Map]] = field(default_factory=list)
    """Each with its adjoint."""

    def push(self, z: Tensor) -> Tensor:
        """From this layer's output to the next one's input."""
        for there, _ in self.maps:
            z = there(z)
        return z

    def pull(self, d: Tensor) -> Tensor:
        """From the derivative by the next layer's input to that by this one's output."""
        for _, back in reversed(self.maps):
            d = back(d)
        return d


def _run(layer: nn.Module, a: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if isinstance(layer, nn.Conv2d):
        return F.conv2d(a, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    if isinstance(layer, nn.Linear):
        return F.linear(a, weight, bias)
    scaled = a * weight.view(-1, 1, 1)  # batch norm's last part
    return scaled if bias is None else scaled.add_(bias.view(-1, 1, 1))


def _to_input(layer: nn.Module, d: Tensor, a: Tensor, weight: Tensor) -> Tensor:
    if isinstance(layer, nn.Conv2d):
        return _convolution_back(layer, d, a, weight, (True, False, False))[0]
    if isinstance(layer, nn.Linear):
        return d @ weight
    return d * weight.view(-1, 1, 1)


def _to_weights(layer: nn.Module, d: Tensor, a: Tensor) -> list[Tensor]:
    """The derivatives by the layer's weight and, if it has one, bias."""
    biased = layer.bias is not None
    if isinstance(layer, nn.Conv2d):
        return _convolution_back(layer, d, a, layer.weight, (False, True, biased))[1 : 2 + biased]
    if isinstance(layer, nn.Linear):
        return [d.t() @ a, d.sum(0)][: 1 + biased]
    return [(d * a).sum((0, 2, 3)), d.sum((0, 2, 3))][: 1 + biased]


def _convolution_back(
    layer: nn.Conv2d, d: Tensor, a: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]
) -> list[Tensor]:
    shape = (layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups)
    return list(aten.convolution_backward(d, a, weight, [len(weight)], *shape, wanted))


def _mapped(layer: nn.Module, a: Tensor) -> tuple[Tensor, Map, Map]:
    """The output of a layer without weights for `a`, the linear map that it is there, and its adjoint."""
    if isinstance(layer, nn.ReLU):
        z = a.relu()

        def gate(d: Tensor) -> Tensor:
            gated: Tensor = aten.threshold_backward.grad_input(d, z, 0, grad_input=d)
            return gated

        return z, gate, gate
    if isinstance(layer, nn.MaxPool2d):
        return _pooled(layer, a)
    if isinstance(layer, nn.Flatten):
        return (
            a.flatten(1),
            lambda d: d.flatten(1),
            lambda d: channels_last(d.view(a.shape)) if a.ndim == 4 else d,
        )
    return a, lambda d: d, lambda d: d


def _pooled(layer: nn.MaxPool2d, a: Tensor) -> tuple[Tensor, Map, Map]:
    shape = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
    z, chosen = F.max_pool2d(a, *shape, return_indices=True)
    n, channels, height, width = a.shape
    # Where each chosen pixel lies in memory, images in channels-last order.
    image, channel = torch.arange(n).view(-1, 1, 1, 1), torch.arange(channels).view(-1, 1, 1)
    places = ((image * height * width + chosen) * channels + channel).permute(0, 2, 3, 1).reshape(-1)
    inside, outside = a.permute(0, 2, 3, 1).shape, z.permute(0, 2, 3, 1).shape

    def there(ra: Tensor) -> Tensor:
        return ra.permute(0, 2, 3, 1).reshape(-1).index_select(0, places).view(outside).permute(0, 3, 1, 2)

    def back(d: Tensor) -> Tensor:
        spread = d.new_zeros(a.numel()).index_add_(0, places, d.permute(0, 2, 3, 1).reshape(-1))
        return spread.view(inside).permute(0, 3, 1, 2)

    return z, there, back


def _normalised(layer: nn.BatchNorm2d, a: Tensor) -> tuple[Tensor, Map, Map]:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    scale = (layer.running_var + layer.eps).rsqrt().view(-1, 1, 1)
    return (a - layer.running_mean.view(-1, 1, 1)) * scale, lambda d: d.mul_(scale), lambda d: d.mul_(scale)


def _known(layer: nn.Module) -> bool:
    if _hooked(layer):
        return False
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.BatchNorm2d:
        return layer.affine and layer.running_mean is not None
    if type(layer) is nn.MaxPool2d:
        return not layer.return_indices
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return type(layer) in (nn.Linear, nn.ReLU, nn.Dropout, nn.Dropout2d, nn.Identity)


def _hooked(module: nn.Module) -> bool:
    """Whether hooks run along with the module."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)

"""Signs in what a model does to a batch of images: does its gradient give single samples away?"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from glasshouse.vetting.probing import Probe
from glasshouse.vetting.signs import Sign

SHARED = 4
"""Rows that sum fewer samples than this, or all but few, differ by one sample in honest networks too."""

CONTAMINATION = 0.05
"""The energy that all other samples may have beside an isolated one, relative to its energy."""

ISOLATED = 8
"""So many isolated samples in one layer are not chance; with two classes it takes twice as many.

With two classes all samples have proportional signals, and what an honest network has learned is nearly one
quantity, by which all of its last rows sort the samples.
"""

ALIKE = 0.99
"""Two rows measure the same quantity if their outputs correlate at least this much over the batch."""

SATURATED = 50.0
"""Biases of the last layer this far apart decide a class, e^50 to one, before any image is seen."""

SILENT = 1e-3
"""A gradient this small relative to the largest counts as none."""


def behaviour_signs(model: nn.Module, seen: Probe) -> Iterator[Sign]:
    """All signs in how `model` treated a batch of images."""
    yield from leaking_rows(seen)
    yield from dead_layers(seen)
    if seen.head is not None:
        head = model.get_submodule(seen.head)
        assert isinstance(head, nn.Linear)
        yield from head_signs(seen.head, head.weight.detach(), head.bias, seen.logits)


def leaking_rows(seen: Probe) -> Iterator[Sign]:
    """Linear layers whose rows' gradients, taken from each other, show single samples of the batch."""
    least = ISOLATED if seen.logits.shape[1] > 2 else 2 * ISOLATED
    for name, signals in seen.signals.items():
        alone = isolated(signals, seen.outputs[name]) if signals.ndim == 2 else set()
        if len(alone) >= least:
            why = (
                f"differences of two rows' gradients show {len(alone)} of {len(signals)} images alone: "
                "linear leakage would read them off exactly"
            )
            yield Sign("linear-leakage", name, why, alarming=True)


def isolated(signals: Tensor, outputs: Tensor) -> set[int]:
    """Which samples the difference of two rows' gradients shows alone, from signals and outputs, (B, rows).

    A row's gradient sums the samples that activate it. Two rows isolate sample n if one sums the same
    samples as the other, in the same proportions, and n besides: then a multiple of the one taken from the
    other leaves n, and what is left of the others is its contamination (energy, relative to n's).
    Rows that sum nearly none or nearly all of the samples are left out, and so are rows that measure
    different things.
    """
    few = max(SHARED, len(signals) // 8)
    measured = outputs.double() - outputs.double().mean(0)
    measured /= measured.norm(dim=0).clamp_min(torch.finfo(torch.double).tiny)
    signals = signals.double() / signals.abs().max().clamp_min(torch.finfo(signals.dtype).tiny)
    active = signals != 0
    sizes = active.sum(0)
    samples: set[int] = set()
    for size in range(few, len(signals) - few):
        fewer, more = (sizes == size).nonzero()[:, 0], (sizes == size + 1).nonzero()[:, 0]
        if len(fewer) == 0 or len(more) == 0:
            continue
        small, large = signals[:, fewer], signals[:, more]
        members = active[:, fewer].double().T
        nested = members @ active[:, more].double() == size
        nested &= (measured[:, fewer].T @ measured[:, more]).abs() > ALIKE
        common = members @ large.square()
        rest = common - (small.T @ large).square() / small.square().sum(0)[:, None]
        alone = large.square().sum(0) - common
        first, second = (nested & (rest < CONTAMINATION * alone)).nonzero().T
        extra = active[:, more[second]] & ~active[:, fewer[first]]
        samples |= set(extra.long().argmax(0).tolist())
    return samples


def dead_layers(seen: Probe) -> Iterator[Sign]:
    """A layer that no image passes, so that a client which holds it adds nothing to the sum before it.

    It alarms where the logits are the same for all images; a dead branch beside a live one is no harm.
    """
    spread = float((seen.logits - seen.logits[0]).abs().max())
    same = spread <= 1e-6 * float(seen.logits.abs().max())
    starved = next((place for place, flow in enumerate(seen.flows) if flow.largest_in == 0), None)
    if starved is None:
        return
    for flow in reversed(seen.flows[:starved]):
        empty = isinstance(flow.module.weight, Tensor) and flow.module.weight.count_nonzero() == 0
        if flow.largest_out < 0 or empty:
            cause = "its weights are all zero" if empty else "its outputs are negative for every image"
            constant = "the answer does not depend on the image, and no gradient reaches the layers before"
            effect = constant if same else "its branch adds nothing"
            yield Sign("dead-layer", flow.name, f"{cause}: {effect}", alarming=same)
            return


def head_signs(name: str, weight: Tensor, bias: Tensor | None, logits: Tensor) -> Iterator[Sign]:
    """A last layer, (classes, width), that silences most classes or lets a single one answer."""
    if bias is not None:
        spread = float(bias.detach().max() - bias.detach().min())
        if spread > SATURATED:
            why = f"its biases lie {spread:.0f} apart, which decides the answer before any image is seen"
            yield Sign("exploding-biases", name, why, alarming=True)
    classes = len(weight)
    probabilities = logits.double().softmax(1)
    silent = int(silent_labels(weight, probabilities).median())
    if silent >= max(2, classes / 2):
        why = f"images of {silent} of {classes} classes add nothing to the gradient, and leave the rest alone"
        yield Sign("silent-classes", name, why, alarming=True)
    if classes > 2 and (live := lone_row(weight)) is not None:
        answer = probabilities[:, live]
        decided = float((torch.minimum(answer, 1 - answer) < SILENT).float().mean())
        if decided > 0.5:
            why = f"only the row of class {live} is live and its answer is all or nothing for most images"
            yield Sign("lone-row", name, why, alarming=True)


def silent_labels(weight: Tensor, probabilities: Tensor) -> Tensor:
    """For each sample, with how many labels it would send no gradient past the last layer, shape (B,).

    The gradient at the layer's input is W^T (p - e_y) for label y.
    """
    scaled = weight.double() / weight.abs().max().clamp_min(torch.finfo(weight.dtype).tiny)
    gram = scaled @ scaled.T
    mixed = probabilities @ gram
    squares = (mixed * probabilities).sum(1, keepdim=True) - 2 * mixed + gram.diagonal()
    return (squares < SILENT**2 * squares.max()).sum(1)


def lone_row(weight: Tensor) -> int | None:
    """The one row, of (classes, width), that differs from all the others, which are alike."""
    lengths = (weight - weight.median(0).values).norm(dim=1)
    largest, second = lengths.topk(2).values
    return int(lengths.argmax()) if second < 0.05 * largest else None

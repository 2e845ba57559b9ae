"""The fourteen operations once more, on levels that need not be whole, so that they have slopes.

An operation takes `levels`, floats in 0..255 of shape (B, C, H, W), and a parameter for each image, of shape
(B,). It does what its namesake in `operations` does, without cutting fractions off. Where that one has steps,
as `equalize` and `posterize` do, the values are the same and the slope is 1, as if there were none. Whoever
knows a policy can so look for images whose transformed versions explain what was seen.
"""

import torch
from torch import Tensor

from glasshouse.defences.policies import operations
from glasshouse.defences.policies.operations import BLACK, BLUE, GREEN, RED, Operation

WHITE = 255


def solarize(levels: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels that are not under `threshold`."""
    return torch.where(levels > _each(threshold.ceil()) - 0.5, WHITE - levels, levels)


def posterize(levels: Tensor, bits: Tensor) -> Tensor:
    """Keep the `bits` leading bits of each level; the slope is 1."""
    return _stepped(levels, operations.posterize(_whole(levels), bits))


def equalize(levels: Tensor, unused: Tensor) -> Tensor:
    """Spread the levels of each channel so that its histogram becomes flat; the slope is 1."""
    return _stepped(levels, operations.equalize(_whole(levels), unused))


def autocontrast(levels: Tensor, unused: Tensor) -> Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its lightest 255."""
    low, high = levels.amin((2, 3), keepdim=True), levels.amax((2, 3), keepdim=True)
    several = high - low >= 1
    stretched = WHITE * (levels - low) / torch.where(several, high - low, 1)
    return torch.where(several, stretched, levels)


def brightness(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from black."""
    return _blend(torch.zeros_like(levels), levels, factor)


def contrast(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from the mean luma of the image."""
    return _blend(_luma(levels).mean((1, 2, 3), keepdim=True), levels, factor)


def color(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from the luma of each pixel, in images of three channels."""
    return _blend(_luma(levels), levels, factor) if levels.shape[1] == 3 else levels


def sharpness(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from the blurred image; pixels on the edge stay as they are."""
    rows = levels[..., :-2, :] + levels[..., 1:-1, :] + levels[..., 2:, :]
    squares = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    inner = levels[..., 1:-1, 1:-1]
    sharpened = levels.clone()
    sharpened[..., 1:-1, 1:-1] = _blend((squares + 4 * inner) / 13, inner, factor)
    return sharpened


def shear_x(levels: Tensor, slope: Tensor) -> Tensor:
    """Shift each row to the left by `slope` times its distance from the top, by the cubic kernel."""
    taken, d, inside = operations.sheared_rows(levels, slope)
    d, width = d.to(levels.dtype), levels.shape[3]
    before, here, after, last = (taken[..., k : k + width] for k in range(4))
    sheared = here + d * (after - before)
    sheared = sheared + d**2 * (2 * before - 2 * here + after - last)
    sheared = sheared + d**3 * (here - before + last - after)
    return torch.where(inside, sheared.clamp(0, WHITE), BLACK)


def shear_y(levels: Tensor, slope: Tensor) -> Tensor:
    """Shift each column upwards by `slope` times its distance from the left."""
    return shear_x(levels.mT, slope).mT


RELAXED: dict[str, Operation] = {
    "invert": operations.invert,  # this and the next three only move levels, which need not be whole for that
    "rotate": operations.rotate,
    "translateX": operations.translate_x,
    "translateY": operations.translate_y,
    "contrast": contrast,
    "sharpness": sharpness,
    "shearX": shear_x,
    "shearY": shear_y,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "posterize": posterize,
    "color": color,
    "brightness": brightness,
    "solarize": solarize,
}


def _each(parameter: Tensor) -> Tensor:
    return parameter[:, None, None, None]


def _whole(levels: Tensor) -> Tensor:
    return levels.detach().round().clamp(0, WHITE).to(torch.uint8).contiguous()


def _stepped(levels: Tensor, changed: Tensor) -> Tensor:
    """The values of `changed` with the slope of `levels`."""
    return levels + (changed - levels).detach()


def _blend(start: Tensor, levels: Tensor, factor: Tensor) -> Tensor:
    blended: Tensor = start + _each(factor.to(levels.dtype)) * (levels - start)
    return blended.clamp(0, WHITE)


def _luma(levels: Tensor) -> Tensor:
    if levels.shape[1] != 3:
        return levels.mean(1, keepdim=True)
    red, green, blue = levels.split(1, dim=1)
    weighed: Tensor = (RED * red + GREEN * green + BLUE * blue) / 65536
    return weighed

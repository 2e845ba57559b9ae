"""Fourteen operations on images of 8 bits, for a whole batch at once, as Pillow does them one by one.

An operation takes `levels`, grey levels 0..255 as uint8 of shape (B, C, H, W), and a parameter for each
image, float64 of shape (B,); it returns levels of the same shape. They are those of AutoAugment (Cubuk et al.
2019) in the version that the authors of ATS (Gao et al. 2021) train with. Nearly all pixels are exactly
Pillow's; those of a shear may be one level off, where a value lies next to a whole number and Pillow, which
computes in 64 bits, cuts its fraction off.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Operation = Callable[[Tensor, Tensor], Tensor]

BLACK, GREY = 0, 128
"""What comes in from outside of a sheared or shifted image, and of a rotated one."""

RED, GREEN, BLUE = 19595, 38470, 7471
"""The weights of luma (ITU-R 601-2) in 65536ths."""


def invert(levels: Tensor, unused: Tensor) -> Tensor:
    """Black becomes white: 255 - v."""
    return 255 - levels


def solarize(levels: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels that are not under `threshold`."""
    inverted = levels >= _each(threshold.ceil().short())
    return levels ^ (255 * inverted.to(torch.uint8))  # v xor 255 is 255 - v


def posterize(levels: Tensor, bits: Tensor) -> Tensor:
    """Keep the `bits` leading bits of each level."""
    return levels & _each(256 - 2 ** (8 - bits)).to(torch.uint8)


def autocontrast(levels: Tensor, unused: Tensor) -> Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its lightest 255.

    A channel of one level stays as it is.
    """
    planes = levels.flatten(2)
    low, high = planes.amin(2, keepdim=True).double(), planes.amax(2, keepdim=True).double()
    white = torch.full_like(low, 255)  # 255 / tensor multiplies by a reciprocal, whose last bit costs a level
    scale = torch.where(high > low, white / (high - low), 1)
    offset = torch.where(high > low, -low * scale, 0)
    table = (torch.arange(256) * scale + offset).clamp_(0, 255).to(torch.uint8)
    return _look_up(levels, table)


def equalize(levels: Tensor, unused: Tensor) -> Tensor:
    """Spread the levels of each channel so that its histogram becomes flat.

    With h the histogram, and s = (pixels that are not of the lightest level) // 255, level i becomes
    (s // 2 + h_0 + ... + h_(i-1)) // s. Where s is 0, as in a channel of one level or of fewer than 256
    pixels, nothing changes.
    """
    planes = levels.flatten(2)
    offsets = 256 * torch.arange(planes.shape[0] * planes.shape[1]).view(*planes.shape[:2], 1)
    histogram = torch.bincount((planes + offsets).flatten(), minlength=256 * offsets.numel())
    histogram = histogram.view(*planes.shape[:2], 256)
    lightest = histogram.gather(2, planes.amax(2, keepdim=True).long())
    step = (planes.shape[2] - lightest) // 255
    below = histogram.cumsum(2) - histogram
    table = torch.where(step > 0, (step // 2 + below) // step.clamp(min=1), torch.arange(256))
    return _look_up(levels, table.clamp_(max=255).to(torch.uint8))


def brightness(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from black: `factor` v."""
    return _blend(torch.zeros((), dtype=torch.uint8), levels, factor)


def contrast(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from the mean luma of the image, rounded: m + `factor` (v - m)."""
    mean = _luma(levels).flatten(1).double().mean(1).add_(0.5).to(torch.uint8)
    return _blend(_each(mean), levels, factor)


def color(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from the luma of each pixel; images that do not have three channels have no colour to change."""
    return _blend(_luma(levels), levels, factor) if levels.shape[1] == 3 else levels


def sharpness(levels: Tensor, factor: Tensor) -> Tensor:
    """Away from the blurred image: the mean of each 3x3 square, in which the middle counts five times.

    Pixels on the edge stay as they are.
    """
    wide = levels.short()
    rows = wide[..., :-2, :] + wide[..., 1:-1, :] + wide[..., 2:, :]
    squares = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    inner = wide[..., 1:-1, 1:-1]
    blurred = (squares + 4 * inner).float().div_(13).round_()
    sharpened = levels.clone()
    sharpened[..., 1:-1, 1:-1] = _blend(blurred, inner, factor)
    return sharpened


def translate_x(levels: Tensor, share: Tensor) -> Tensor:
    """Shift to the left by `share` of the width, rounded to pixels; black comes in."""
    width = levels.shape[3]
    columns = (share * width + 0.5).floor().long()[:, None] + torch.arange(width)
    shifted = levels.gather(3, columns.clamp(0, width - 1)[:, None, None].expand(levels.shape))
    return _filled(shifted, _inside(columns, width)[:, None, None], BLACK)


def translate_y(levels: Tensor, share: Tensor) -> Tensor:
    """Shift upwards by `share` of the height, rounded to pixels; black comes in."""
    return translate_x(levels.mT, share).mT.contiguous()


def shear_x(levels: Tensor, slope: Tensor) -> Tensor:
    """Shift each row to the left by `slope` times its distance from the top; black comes in.

    Between pixels it is interpolated by the cubic kernel with a = -1, on edges that are continued:
    at d pixels after v_0 lies v_0 + d (v_1 - v_-1) + d^2 (2 v_-1 - 2 v_0 + v_1 - v_2)
    + d^3 (v_0 - v_-1 + v_2 - v_1).
    """
    taken, d, inside = sheared_rows(levels, slope)
    taken, d, width = taken.float(), d.float(), levels.shape[3]
    before, here, after, last = (taken[..., k : k + width] for k in range(4))
    # In this order of operations a plain area stays exactly as it is, and loses no level to a cut fraction.
    fall = before - here
    sheared = (after - last).add_(fall).mul_(1 - d).add_(fall).mul_(d)
    sheared = sheared.add_(after).sub_(before).mul_(d).add_(here)
    return _filled(sheared.clamp_(0, 255).to(torch.uint8), inside, BLACK)


def sheared_rows(levels: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the places of an image are interpolated from whose rows shift to the left.

    The levels from one before a row's first place to two after its last, shape (B, C, H, W + 3); how far the
    places of a row lie behind a level, in [0, 1), (B, 1, H, 1); and which lie in the image, (B, 1, H, W).
    """
    height, width = levels.shape[2:]
    shift = slope[:, None] * (torch.arange(height) + 0.5)
    first = shift.floor()
    places = (torch.arange(width + 3) - 1 + first.long()[:, :, None]).clamp_(0, width - 1)
    taken = levels.gather(3, places[:, None].expand(-1, levels.shape[1], -1, -1))
    centres = torch.arange(width) + 0.5 + shift[:, :, None]
    return taken, (shift - first)[:, None, :, None], _inside(centres, width)[:, None]


def shear_y(levels: Tensor, slope: Tensor) -> Tensor:
    """Shift each column upwards by `slope` times its distance from the left; black comes in."""
    return shear_x(levels.mT, slope).mT.contiguous()


def rotate(levels: Tensor, degrees: Tensor) -> Tensor:
    """Turn counter-clockwise about the middle, to the nearest pixels; grey comes in.

    Places are counted in 65536ths of a pixel, as Pillow counts them.
    """
    height, width = levels.shape[2:]
    cosine, sine = degrees.deg2rad().cos(), degrees.deg2rad().sin()
    left = width / 2 - cosine * width / 2 + sine * height / 2
    top = height / 2 - sine * width / 2 - cosine * height / 2
    across, down = torch.arange(width), torch.arange(height)[:, None]
    columns = _fixed(cosine) * across - _fixed(sine) * down + _fixed(left + (cosine - sine) / 2)
    rows = _fixed(sine) * across + _fixed(cosine) * down + _fixed(top + (sine + cosine) / 2)
    columns, rows = columns >> 16, rows >> 16
    places = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    planes = levels.flatten(2)
    turned = planes.gather(2, places.flatten(1)[:, None].expand(planes.shape)).view(levels.shape)
    return _filled(turned, (_inside(columns, width) & _inside(rows, height))[:, None], GREY)


OPERATIONS: dict[str, Operation] = {
    "invert": invert,
    "contrast": contrast,
    "rotate": rotate,
    "translateX": translate_x,
    "translateY": translate_y,
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
    """A value for each image, to stand beside (B, C, H, W)."""
    return parameter[:, None, None, None]


def _blend(start: Tensor, levels: Tensor, factor: Tensor) -> Tensor:
    """`start` + `factor` (`levels` - `start`) in 32 bits, bounded, with fractions cut off."""
    start = start.float()
    blended = (levels.float() - start).mul_(_each(factor.float())).add_(start)
    return blended.clamp_(0, 255).to(torch.uint8)


def _luma(levels: Tensor) -> Tensor:
    """How light each pixel is, (B, 1, H, W): as eyes see three channels, else their mean."""
    if levels.shape[1] == 1:
        return levels
    if levels.shape[1] != 3:
        return levels.float().mean(1, keepdim=True).to(torch.uint8)
    red, green, blue = levels.int().split(1, dim=1)
    weighed: Tensor = RED * red + GREEN * green + BLUE * blue
    return ((weighed + 32768) >> 16).to(torch.uint8)


def _look_up(levels: Tensor, table: Tensor) -> Tensor:
    """Each level replaced by the entry of its channel's table, (B, C, 256)."""
    return table.gather(2, levels.flatten(2).long()).view(levels.shape)


def _inside(places: Tensor, side: int) -> Tensor:
    return (places >= 0) & (places < side)


def _filled(levels: Tensor, inside: Tensor, fill: int) -> Tensor:
    """`levels` where they are `inside`, else `fill`; arithmetic is faster than a choice for each byte."""
    return levels * inside + fill * (~inside).to(torch.uint8)


def _fixed(value: Tensor) -> Tensor:
    return (value * 65536 + 0.5).floor().long()[:, None, None]

"""What a training batch goes through at random, so that no image is seen twice alike.

An augmentation is named, like a defence, with its options, and several are joined: `crop(pad=4)+flip`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshouse.learning.augment_options import check_options, named_augmentations

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
"""From images of shape (B, C, H, W) in [0, 1] to those in their place; each image has a draw of its own."""


@dataclass(frozen=True, kw_only=True)
class Crop:
    """Shifts an image by up to `pad` pixels, with black ones in the place of those that are missing."""

    pad: int = 4

    def __post_init__(self) -> None:
        check_options("crop", vars(self))

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        count, _, height, width = x.shape
        wide = F.pad(x, (self.pad,) * 4)
        top, left = torch.randint(0, 2 * self.pad + 1, (2, count, 1), generator=rng)
        rows, columns = top + torch.arange(height), left + torch.arange(width)
        # Indexed as (B, H, W, C): a view that leaves the result in the order convolutions like.
        cropped = wide.permute(0, 2, 3, 1)[
            torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]
        ]
        return cropped.permute(0, 3, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Mirrors half of the images, left to right."""

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        mirrored = torch.rand(len(x), 1, generator=rng) < 0.5
        return torch.where(mirrored[:, :, None, None], x.flip(3), x)


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Turns an image about its middle by up to `degrees` either way, with black corners."""

    degrees: float = 15.0

    def __post_init__(self) -> None:
        check_options("rotation", vars(self))

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        count, _, height, width = x.shape
        angles = torch.deg2rad(self.degrees * (2 * torch.rand(count, generator=rng) - 1))
        cosine, sine, none = angles.cos(), angles.sin(), torch.zeros(count)
        turns = torch.stack(
            [cosine, -sine * height / width, none, sine * width / height, cosine, none], 1
        ).view(count, 2, 3)
        places = F.affine_grid(turns, list(x.shape), align_corners=False)
        return F.grid_sample(x, places, align_corners=False)


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """Changes an image's brightness and contrast by a factor of up to 1 +- `brightness`, 1 +- `contrast`."""

    brightness: float = 0.2
    contrast: float = 0.2

    def __post_init__(self) -> None:
        check_options("jitter", vars(self))

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        drawn = 2 * torch.rand(2, len(x), 1, 1, 1, generator=rng) - 1
        brighter = x * (1 + self.brightness * drawn[0])
        mean = brighter.mean((1, 2, 3), keepdim=True)
        return (mean + (brighter - mean) * (1 + self.contrast * drawn[1])).clamp(0, 1)


AUGMENTATIONS: dict[str, type[Crop | Flip | Rotation | Jitter]] = {
    "crop": Crop,
    "flip": Flip,
    "rotation": Rotation,
    "jitter": Jitter,
}


@cache
def augmentations(spec: str) -> tuple[Augmentation, ...]:
    """Those that `spec` names, in their order; none where it is empty.

    >>> augmentations("crop(pad=2)+flip")
    (Crop(pad=2), Flip())
    """
    return tuple(AUGMENTATIONS[name](**options) for name, options in named_augmentations(spec))


def augmented(x: Tensor, spec: str, rng: torch.Generator) -> Tensor:
    """The images `x`, shape (B, C, H, W), changed as `spec` says."""
    for change in augmentations(spec):
        x = change(x, rng)
    return x


def crop_and_flip(x: Tensor, rng: torch.Generator) -> Tensor:
    """Shift each image of `x`, shape (B, C, H, W), by up to 4 pixels, and mirror half of them."""
    return augmented(x, "crop(pad=4)+flip", rng)

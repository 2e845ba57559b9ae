"""The operations of transformation policies against Pillow, image by image."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from glasshouse.defences.policies.operations import BLACK, GREY, OPERATIONS
from glasshouse.defences.policies.transformations import ENHANCEMENTS, LEVELS, LIBRARY, SIGNED, Transformation


def random_images(count, channels, side=(32, 32), seed=0):
    """Levels 0..255: noise, smooth images, images of few levels and images of one."""
    rng = np.random.default_rng(seed)
    height, width = side
    noise = rng.integers(0, 256, (count, channels, height, width))
    waves = np.sin(np.arange(height)[:, None] / 5 + np.arange(width) / 3)
    smooth = 120 + 90 * waves + rng.integers(0, 10, (count, channels, height, width))
    narrow = 60 + noise // 4
    flat = np.broadcast_to(rng.integers(0, 256, (count, channels, 1, 1)), noise.shape)
    return torch.from_numpy(np.concatenate([noise, smooth, narrow, flat]).astype(np.uint8))


def as_pillow(image):
    """One image, (C, H, W), of one or three channels."""
    array = image.permute(1, 2, 0).numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def from_pillow(image):
    return torch.from_numpy(np.array(image)).reshape(image.height, image.width, -1).permute(2, 0, 1)


def affine(image, matrix, resample=Image.Resampling.NEAREST):
    fill = BLACK if image.mode == "L" else (BLACK,) * 3
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample, fillcolor=fill)


def rotated(image, degrees):
    turned = image.convert("RGBA").rotate(degrees)
    background = Image.new("RGBA", turned.size, (GREY,) * 4)
    return Image.composite(turned, background, turned).convert(image.mode)


def colored(image, factor):
    return image if image.mode == "L" else ImageEnhance.Color(image).enhance(factor)


PILLOW = {
    "invert": lambda image, _: ImageOps.invert(image),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "rotate": rotated,
    "translateX": lambda image, share: affine(image, (1, 0, share * image.width, 0, 1, 0)),
    "translateY": lambda image, share: affine(image, (1, 0, 0, 0, 1, share * image.height)),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "shearX": lambda image, slope: affine(image, (1, slope, 0, 0, 1, 0), Image.Resampling.BICUBIC),
    "shearY": lambda image, slope: affine(image, (1, 0, 0, slope, 1, 0), Image.Resampling.BICUBIC),
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "color": colored,
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "solarize": lambda image, threshold: ImageOps.solarize(image, threshold),
}

CUTTING = (*ENHANCEMENTS, "shearX", "shearY")
"""Pillow cuts their fractions off, so that a rounding error can cost a level."""


def parameters(operation):
    """Every parameter that the library could ask for, of both signs where there are two."""
    magnitudes = [Transformation(operation, level).magnitude for level in range(LEVELS)]
    if operation in SIGNED:
        magnitudes += [-magnitude for magnitude in magnitudes]
    return [1 + magnitude for magnitude in magnitudes] if operation in ENHANCEMENTS else magnitudes


def differences(operation, images, parameter):
    """By how many levels each pixel differs from Pillow's, with a parameter for each image."""
    ours = OPERATIONS[operation](images, torch.tensor(parameter, dtype=torch.float64))
    theirs = [
        from_pillow(PILLOW[operation](as_pillow(image), value)) for image, value in zip(images, parameter)
    ]
    assert ours.dtype == torch.uint8
    return (ours.int() - torch.stack(theirs).int()).abs()


@pytest.mark.parametrize("side", [(32, 32), (28, 28), (8, 8), (17, 40)], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_at_every_level_does_what_pillow_does(operation, channels, side):
    choices = parameters(operation)
    images = random_images(-(-len(choices) // 4) * 2, channels, side)
    difference = differences(operation, images, [choices[k % len(choices)] for k in range(len(images))])
    if operation in CUTTING:
        assert difference.max() <= 1
        assert (difference > 0).float().mean() < 0.01
    else:
        assert difference.max() == 0


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_image_has_a_parameter_of_its_own(operation):
    choices = parameters(operation)
    images = random_images(5, 3)
    together = torch.tensor(choices)[torch.arange(20) % len(choices)]
    alone = [OPERATIONS[operation](image[None], value[None])[0] for image, value in zip(images, together)]
    assert torch.equal(OPERATIONS[operation](images, together), torch.stack(alone))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("shape", [(2, 4, 6, 5), (3, 2, 1, 1), (1, 1, 2, 9), (0, 3, 8, 8)], ids=str)
def test_any_number_of_channels_and_any_size_keeps_its_shape(operation, shape):
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for level in range(LEVELS):
        changed = Transformation(operation, level).apply(images, torch.Generator())
        assert changed.shape == shape
        assert changed.dtype == torch.uint8


def test_the_library_has_fifty_of_which_29_differ_and_two_do_nothing():
    assert len(LIBRARY) == 50
    assert {transformation.operation for transformation in LIBRARY} <= set(OPERATIONS)
    images = random_images(4, 3)
    effects = [
        transformation.apply(images, torch.Generator().manual_seed(0)).numpy().tobytes()
        for transformation in LIBRARY
    ]
    idle = [index for index, effect in enumerate(effects) if effect == images.numpy().tobytes()]
    assert idle == [28, 39]
    assert len(set(effects)) == 28  # the two idle ones have one effect
    assert len({(t.operation, t.magnitude) for t in LIBRARY}) == 29


@pytest.mark.parametrize("operation", OPERATIONS)
def test_signs_are_drawn_for_each_image_where_the_operation_goes_both_ways(operation):
    image = random_images(1, 3)[:1]
    batch = image.expand(400, -1, -1, -1)
    changed = Transformation(operation, 6).apply(batch, torch.Generator().manual_seed(0))
    kinds, counts = changed.flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == (2 if operation in SIGNED else 1)
    if operation in SIGNED:
        assert abs(int(counts[0]) - 200) < 50  # five standard deviations


@pytest.mark.parametrize(("transformation", "magnitude"), [
    (Transformation("translateX", 9), 150 / 331),
    (Transformation("rotate", 3), 10),
    (Transformation("shearY", 6), 0.2),
    (Transformation("contrast", 9), 0.5),
    (Transformation("posterize", 5), 6),
    (Transformation("posterize", 9), 4),
    (Transformation("solarize", 0), 256),
    (Transformation("equalize", 7), 0),
])  # fmt: skip
def test_levels_divide_the_range_of_an_operation(transformation, magnitude):
    assert transformation.magnitude == pytest.approx(magnitude)

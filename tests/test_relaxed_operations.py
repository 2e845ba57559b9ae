"""Operations with slopes: they do what those on 8 bits do, and their slopes are those of what they do."""

import pytest
import torch

from glasshouse.defences.policies.draws import Draw, possible_draws
from glasshouse.defences.policies.operations import OPERATIONS
from glasshouse.defences.policies.policy import parse_policy
from glasshouse.defences.policies.relaxed import RELAXED
from glasshouse.defences.policies.transformations import ENHANCEMENTS, LEVELS, RANGES, SIGNED, Transformation

STEPPED = ("equalize", "posterize")


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def scenes(count=6, channels=3, side=24, seed=0):
    """Images of 8 bits as cameras make them: smooth, with edges and a little noise."""
    coarse = torch.rand(count, channels, 4, 4, generator=rng(seed))
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic")
    smooth[..., side // 3 :, side // 2 :] *= 0.6
    noisy = smooth + 0.02 * torch.randn(smooth.shape, generator=rng(seed + 1))
    return (255 * noisy).round().clamp(0, 255)


def parameters(operation):
    """Every parameter that a policy can give the operation."""
    for level in range(LEVELS):
        magnitude = Transformation(operation, level).magnitude
        for sign in (-1, 1) if operation in SIGNED else (1,):
            yield sign * magnitude + (operation in ENHANCEMENTS)
        if operation not in RANGES:
            return


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_rounding_an_operation_is_that_on_8_bits_within_two_levels(operation, channels):
    levels = scenes(channels=channels)
    for value in parameters(operation):
        each = torch.full((len(levels),), value, dtype=torch.float64)
        relaxed = RELAXED[operation](levels, each)
        expected = OPERATIONS[operation](levels.to(torch.uint8), each).float()
        assert relaxed.shape == levels.shape
        assert (relaxed - expected).abs().max() <= 2, value


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in STEPPED])
def test_slopes_are_those_of_finite_differences(operation):
    # Whole levels plus 1/4 are far from every threshold, edge and tie, next to which there is no slope.
    levels = (20 + 215 * scenes(2, side=9).double() / 255).round() + 0.25
    levels += 1e-3 * torch.rand(levels.shape, generator=rng(2)).double()
    direction = torch.randn(levels.shape, generator=rng(3)).double()
    for value in parameters(operation):
        each = torch.full((len(levels),), value, dtype=torch.float64)
        seen = torch.randn(levels.shape, generator=rng(4)).double()
        start = levels.clone().requires_grad_()
        (slope,) = torch.autograd.grad((RELAXED[operation](start, each) * seen).sum(), start)
        h = 1e-7
        there, back = (
            (RELAXED[operation](levels + way * h * direction, each) * seen).sum() for way in (1, -1)
        )
        expected = ((there - back) / (2 * h)).item()
        assert (slope * direction).sum().item() == pytest.approx(expected, rel=1e-3, abs=1e-3), value


@pytest.mark.parametrize("operation", STEPPED)
def test_steps_have_the_slope_of_what_they_follow(operation):
    levels = scenes(1).requires_grad_()
    each = torch.full((1,), 4.0, dtype=torch.float64)
    (slope,) = torch.autograd.grad(RELAXED[operation](levels, each).sum(), levels)
    assert torch.equal(slope, torch.ones_like(levels))


@pytest.mark.parametrize(("policy", "channels", "count"), [
    ("0", 3, 1),
    ("3", 3, 2),
    ("3-1-7", 3, 8),
    ("3-1-7+43-18-18", 3, 8 + 2 * 2 * 2),
    ("28-39-28+39", 3, 1),  # none of these does anything
    ("12-27", 3, 4),
    ("12-27", 1, 1),  # grey images have no colour
    ("29+47+0", 3, 1),  # all of them invert
])  # fmt: skip
def test_a_policy_has_a_case_for_each_choice_and_the_signs_of_its_operations(policy, channels, count):
    draws = possible_draws(parse_policy(policy), (channels, 32, 32))
    assert len(draws) == count
    assert sum(draws.values()) == pytest.approx(1)


@pytest.mark.parametrize("policy", ["3-1-7", "10-14-2", "21-13-3", "7-4-15+0-9-37", "42-28-42+11-8-20"])
def test_what_a_policy_does_to_an_image_is_one_of_its_cases(policy):
    x, written = scenes(8) / 255, parse_policy(policy)
    transformed = written.apply(x, rng())
    cases = torch.stack([draw.apply(x) for draw in possible_draws(written, (3, 32, 32))])
    off = (cases - transformed).abs().flatten(2)
    nearest = off.mean(2).argmin(0)
    # A level lost before an equalisation or a threshold may become several; single pixels may be further off.
    assert all(off[case, image].mean() < 2 / 255 for image, case in enumerate(nearest))


def test_how_often_a_case_comes_up_is_as_often_as_it_is_drawn():
    written = parse_policy("0+3+29")
    draws = possible_draws(written, (3, 32, 32))
    x = (scenes(1) / 255).expand(900, -1, -1, -1)
    transformed = written.apply(x, rng())
    for draw, probability in draws.items():
        met = (draw.apply(x[:1]) - transformed).abs().flatten(1).amax(1) < 1 / 255
        assert abs(int(met.sum()) - 900 * probability) < 75  # five standard deviations


def test_a_case_transforms_any_number_of_copies_and_keeps_their_shape():
    x = torch.rand(2, 3, 1, 8, 8, generator=rng())
    draw = Draw((("translateX", 0.25), ("invert", 0.0)))
    transformed = draw.apply(x)
    assert transformed.shape == x.shape
    torch.testing.assert_close(transformed[..., :6], 1 - x[..., 2:])
    torch.testing.assert_close(transformed[..., 6:], torch.ones(2, 3, 1, 8, 2))
    assert str(draw) == "translateX +0.25, invert"

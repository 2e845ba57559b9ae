"""Transformation policies: how they are written, read and applied, and the defence that trains with them."""

import dataclasses

import pytest
import torch
from conftest import SHAPE, make_images, make_model, make_split

from glasshouse.defences import DEFENCES, make_defences
from glasshouse.defences.policies.defence import TransformationPolicy
from glasshouse.defences.policies.files import read_policy
from glasshouse.defences.policies.policy import Policy, parse_policy, random_policy
from glasshouse.defences.policies.published import PUBLISHED, published_policy
from glasshouse.defences.policies.transformations import LIBRARY
from glasshouse.errors import BadInput
from glasshouse.federation.federation import Federation, Plan
from glasshouse.learning.augment import crop_and_flip
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.listing import listing
from glasshouse.provenance import own_code, work_name


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=16, channels=3, side=12, seed=1):
    """Images of 8 bits in [0, 1]."""
    return torch.randint(0, 256, (count, channels, side, side), generator=rng(seed)) / 255


@pytest.mark.parametrize("text", ["3-1-7", "0", "49-28", "3-1-7+43-18-18", "1+2-3+4-5-6"])
def test_a_policy_is_written_as_it_is_read(text):
    assert str(parse_policy(text)) == text


@pytest.mark.parametrize(("text", "words"), [
    ("50", "'50' in transformation policy '50' names none; write one to 3 indices from 0 to 49"),
    ("3-1-123456", "'123456' in transformation policy"),
    ("1-2-3-4", "has 4 in a row; write one to 3 indices"),
    ("3-1-", "'3-1-' cannot be read; write one to 3 indices"),
    ("3--1", "cannot be read"),
    ("3-1-7+", "cannot be read"),
    ("3 1 7", "cannot be read"),
    ("", "policy = '' is none; write one to 3 indices"),
    ("publishd", "policy = 'publishd' is none; .*, or give 'published'"),
    ("-3", "policy = '-3' is none"),
    (317, "policy = 317 is none"),
    (None, "policy = None is none"),
    ("absent.toml", "policy file absent.toml cannot be read .*; check the path"),
])  # fmt: skip
def test_what_is_no_policy_is_refused_with_a_remedy(text, words):
    with pytest.raises(BadInput, match=words) as refusal:
        TransformationPolicy(policy=text)
    assert "\n" not in str(refusal.value)


def test_a_switch_that_is_no_switch_is_refused():
    with pytest.raises(BadInput, match="crop_and_flip = 1 is out of range; it must be True or False"):
        make_defences("transformation-policy(crop_and_flip=1)")


def test_transformations_are_applied_in_their_order():
    x = images(side=32)
    levels = (255 * x).round().to(torch.uint8)
    expected = LIBRARY[11].apply(LIBRARY[9].apply(levels, rng()), rng())  # equalize, then posterize
    assert torch.equal(parse_policy("9-11").apply(x, rng()), expected / 255)
    assert not torch.equal(parse_policy("11-9").apply(x, rng()), expected / 255)


def test_transformations_that_do_nothing_leave_images_of_8_bits_exactly_as_they_are():
    x = images()
    assert torch.equal(parse_policy("28-39-28+39").apply(x, rng()), x)


@pytest.mark.parametrize("cropped", [False, True])
def test_moving_is_all_that_a_policy_of_moves_does(cropped):
    defence = TransformationPolicy(policy="3-28-43", crop_and_flip=cropped)
    x = images(12, side=32)
    assert torch.equal(defence.move(x, rng(3)), defence.on_batch(x, rng(3)))


@pytest.mark.parametrize("policy", ["15-3-7", "15-3-7+13-2-21", "43-13-21"])
@pytest.mark.parametrize("cropped", [False, True])
def test_moving_draws_as_the_whole_policy_does(policy, cropped):
    """Pixels that were filled in do not depend on the image; the others come from where `move` says."""
    defence = TransformationPolicy(policy=policy, crop_and_flip=cropped)
    filled = defence.move(torch.ones(12, 3, 32, 32), rng(3)) < 0.75
    assert 0.05 < filled.float().mean() < 0.9
    changed = [defence.on_batch(images(12, side=32, seed=seed), rng(3)) for seed in (4, 5)]
    assert torch.equal(changed[0][filled], changed[1][filled])
    assert (changed[0] != changed[1])[~filled].float().mean() > 0.9


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_any_policy_keeps_shape_and_range_and_gives_multiples_of_a_255th(channels, seed):
    policy = random_policy(rng(seed))
    x = torch.rand(6, channels, 9, 12, generator=rng(seed)).contiguous(memory_format=torch.channels_last)
    before = x.clone()
    changed = policy.apply(x, rng(seed))
    assert changed.shape == x.shape
    assert changed.dtype == x.dtype
    assert changed.min() >= 0
    assert changed.max() <= 1
    torch.testing.assert_close(255 * changed, (255 * changed).round(), rtol=0, atol=1e-4)
    assert torch.equal(x, before)


def test_images_are_the_same_for_the_same_generator_whatever_their_memory_order():
    x, policy = images(), parse_policy("3-1-7+10-14-2")
    changed = policy.apply(x, rng(5))
    assert torch.equal(changed, policy.apply(x.contiguous(memory_format=torch.channels_last), rng(5)))
    assert not torch.equal(changed, policy.apply(x, rng(6)))


def test_a_hybrid_gives_each_image_one_of_its_policies_with_equal_chances():
    x = images(1, side=8).expand(600, -1, -1, -1)
    changed = parse_policy("0+28+11").apply(x, rng())  # invert, nothing, posterize: none of them draws a sign
    alone = [parse_policy(text).apply(x[:1], rng()) for text in ("0", "28", "11")]
    counts = [int((changed == one).flatten(1).all(1).sum()) for one in alone]
    assert sum(counts) == 600
    assert all(abs(count - 200) < 60 for count in counts)  # five standard deviations


def test_random_policies_come_from_the_generator_and_from_the_whole_library():
    drawn = [random_policy(generator) for generator in [rng(1)] for _ in range(200)]
    assert all(len(policy.choices) == 1 and len(policy.choices[0]) == 3 for policy in drawn)
    assert {index for policy in drawn for index in policy.choices[0]} == set(range(50))
    assert random_policy(rng(1)) == drawn[0]


def test_published_policies_are_readable_and_the_hybrid_fits_the_number_of_channels():
    assert all(isinstance(parse_policy(entry.policy), Policy) for entry in PUBLISHED)
    for channels, data in ((1, "fashion-mnist"), (3, "cifar100")):
        found = [entry.policy for entry in PUBLISHED if (entry.data, entry.model) == (data, "resnet20-4")]
        assert str(published_policy(channels)) == "+".join(found)
        x = images(channels=channels)
        expected = parse_policy("+".join(found)).apply(x, rng())
        assert torch.equal(TransformationPolicy().on_batch(x, rng()), expected)


def test_the_policy_follows_crops_and_flips():
    x, generator = images(), rng()
    expected = parse_policy("3-1-7").apply(crop_and_flip(x, generator), generator)
    defence = TransformationPolicy(policy="3-1-7", crop_and_flip=True)
    assert torch.equal(defence.on_batch(x, rng()), expected)


POLICY_FILE = """
policy = "3-1-7+43-18-18"
shape = [3, 12, 12]
data = "cifar100"
model = "resnet20-4"

[scores]
privacy = 0.25
accuracy = -70
"""


def test_a_policy_file_is_used_for_images_of_its_shape_alone(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(POLICY_FILE)
    content = read_policy(path)
    assert (content.shape, content.data, content.model) == ((3, 12, 12), "cifar100", "resnet20-4")
    assert content.scores == {"privacy": 0.25, "accuracy": -70}
    (defence,) = make_defences(f"transformation-policy(policy='{path}')").defences
    x = images()
    assert torch.equal(defence.on_batch(x, rng()), parse_policy("3-1-7+43-18-18").apply(x, rng()))
    with pytest.raises(BadInput, match=r"shape \(3, 12, 12\), and these have \(1, 12, 12\); give a policy"):
        defence.on_batch(images(channels=1), rng())


@pytest.mark.parametrize(("content", "words"), [
    ("policy = ", "is not valid TOML"),
    ("shape = [3, 32, 32]", "it has no 'policy'; add one"),
    ('policy = "3-1-7"', "it has no 'shape'; add one"),
    ('policy = "3-1-77"\nshape = [3, 32, 32]', "'77' in transformation policy '3-1-77' names none"),
    ('policy = "published"\nshape = [3, 32, 32]', "'published' cannot be read"),
    ('policy = 3\nshape = [3, 32, 32]', "policy 3 cannot be read"),
    ('policy = "3"\nshape = [3, 32]', "is no shape; write channels, height and width"),
    ('policy = "3"\nshape = [3, 32, true]', "is no shape"),
    ('policy = "3"\nshape = [3, 32, 32]\nmodel = 5', "model = 5 is no text"),
    ('policy = "3"\nshape = [3, 32, 32]\nmodell = "x"', "unknown entry 'modell'; did you mean 'model'?"),
    ('policy = "3"\nshape = [3, 32, 32]\nscores = 4', "scores = 4 is no table"),
    ('policy = "3"\nshape = [3, 32, 32]\n[scores]\na = nan', "score 'a' = nan is out of range"),
    (f'policy = "3"\nshape = [3, 32, 32]\n[scores]\na = {10**400}', "score 'a' = 1000.* is out of range"),
    ('policy = "3"\nshape = [3, 32, 32]\n[scores]\na = "x"', "score 'a' = 'x' is out of range"),
])  # fmt: skip
def test_a_damaged_policy_file_is_refused_with_a_remedy(content, words, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(BadInput, match=words) as refusal:
        TransformationPolicy(policy=str(path))
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_kept_work_is_named_after_what_a_policy_file_says(tmp_path):
    path = tmp_path / "mine.toml"
    spec = f"transformation-policy(policy='{path}')"
    names = []
    for policy in ("3-1-7", "43-18-18", "3-1-7"):
        path.write_text(POLICY_FILE.replace("3-1-7+43-18-18", policy))
        assert len(own_code([spec])) == 1
        names.append(work_name("defended", [spec]))
    assert names[0] == names[2] != names[1]
    assert own_code(["transformation-policy(policy='3-1-7')"]) == {}


def test_the_defence_is_listed_with_its_options():
    (line,) = [line for line in listing("defences") if line.startswith("transformation-policy ")]
    assert line.endswith("(policy='published', crop_and_flip=False)")


def test_the_defence_trains_on_transformed_batches():
    model, data = make_model(), make_images(24)
    start, recipe = read_vector(model), Recipe(epochs=1, batch_size=24, lr=0.1)
    idle = make_defences("transformation-policy(policy='28')")
    inverted = make_defences("transformation-policy(policy='0')")
    eight_bits = dataclasses.replace(data, x=(255 * data.x).round() / 255)
    negatives = dataclasses.replace(data, x=1 - eight_bits.x)
    for stack, seen in ((idle, eight_bits), (inverted, negatives)):
        trained = fit(model, start, data, recipe, 0, stack.training())
        torch.testing.assert_close(trained, fit(model, start, seen, recipe, 0))


def test_the_defence_composes_with_others_and_hybrids_keep_their_plus_sign():
    spec = "transformation-policy(policy='3-1-7+43-18-18',crop_and_flip=True)+pruning(fraction=0.95)"
    transforming, pruning = make_defences(spec).defences
    assert str(transforming.policy_for((3, 32, 32))) == "3-1-7+43-18-18"
    assert isinstance(pruning, DEFENCES.load("pruning"))


@pytest.mark.parametrize("spec", [
    "transformation-policy",
    "transformation-policy(policy='3-1-7')+pruning(fraction=0.95)",
    "transformation-policy(policy='2-6-9',crop_and_flip=True)+clipping(norm=1.0)",
])  # fmt: skip
def test_a_federation_trains_with_the_defence_and_repeats_itself(spec, engine):
    def vector(defences):
        federation = Federation(
            make_model(), make_split(), Recipe(lr=0.1), engine=engine, defences=make_defences(defences)
        )
        return federation.run(read_vector(make_model()), Plan(rounds=2)).vector

    defended = vector(spec)
    assert defended.isfinite().all()
    assert torch.equal(defended, vector(spec))
    assert not torch.equal(defended, vector("none"))


def test_a_federation_of_other_images_refuses_a_policy_file(engine, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(POLICY_FILE)
    assert SHAPE != (3, 12, 12)
    stack = make_defences(f"transformation-policy(policy='{path}')")
    federation = Federation(make_model(), make_split(), Recipe(), engine=engine, defences=stack)
    with pytest.raises(BadInput, match="is for images of shape"):
        federation.run(read_vector(make_model()), Plan(rounds=1))

import doctest
import time

import numpy as np
import pytest
import torch
from conftest import make_images

from glasshouse.data import duplicates
from glasshouse.data.dataset import Dataset
from glasshouse.data.duplicates import first_copies
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.data.split import Split, split
from glasshouse.errors import BadInput

PARTS = ("members", "nonmembers", "auxiliary", "test")


def repeated(images: Images, times: int, *, relabelled: bool = False) -> Images:
    """Every image `times` times over; with `relabelled` each copy has another label."""
    labels = [images.y + (copy if relabelled else 0) for copy in range(times)]
    return Images(images.x.repeat(times, 1, 1, 1), torch.cat(labels) % images.classes, images.classes)


def with_copies(images: Images, sources: list[int]) -> Images:
    """`images`, then copies of those at the positions `sources`."""
    extra = images[torch.tensor(sources)]
    return Images(torch.cat([images.x, extra.x]), torch.cat([images.y, extra.y]), images.classes)


def pictures(parts: Split, name: str) -> set[bytes]:
    return {image.numpy().tobytes() for image in parts.images(name).x}


def in_two_parts(parts: Split) -> int:
    every = [picture for name in PARTS for picture in pictures(parts, name)]
    return len(every) - len(set(every))


@pytest.mark.parametrize("relabelled", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_with_every_image_twice_none_is_member_and_nonmember(seed, relabelled):
    data = Dataset("twice", repeated(make_images(180), 2, relabelled=relabelled))
    parts = split(data, clients=3, seed=seed)
    assert in_two_parts(parts) == 0
    assert parts.duplicates == 180
    sizes = [len(getattr(parts, name)) for name in PARTS]
    assert sizes == pytest.approx([180, 72, 36, 72], abs=1)  # as without copies, but for odd ones
    for name in PARTS:
        assert (parts.images(name).label_counts() > 0).all()


def test_a_class_that_is_ten_copies_of_each_image_is_in_every_part():
    images = make_images(400)
    rare = np.flatnonzero(images.y.numpy() == 0)[:20]
    others = np.flatnonzero(images.y.numpy() != 0)
    x = torch.cat([images.x[others], images.x[rare].repeat(10, 1, 1, 1)])
    y = torch.cat([images.y[others], images.y[rare].repeat(10)])
    parts = split(Dataset("oversampled", Images(x, y, images.classes)), clients=3)
    assert in_two_parts(parts) == 0
    for name in PARTS:
        assert parts.images(name).label_counts()[0] >= 10


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("official", [False, True])
def test_a_few_copies_leave_the_members_alone_and_drop_out_of_later_parts(seed, official):
    plain = make_images(600)
    copied = with_copies(plain, [3, 14, 15])
    others = Images(torch.rand(3, 1, 8, 8), torch.tensor([3, 2, 3]), plain.classes)
    unlike = Images(torch.cat([plain.x, others.x]), copied.y, plain.classes)
    test = make_images(40, seed=1) if official else None
    parts = split(Dataset("copies", copied, test), clients=3, seed=seed)
    expected = split(Dataset("unlike", unlike, test), clients=3, seed=seed)
    assert in_two_parts(parts) == 0
    assert parts.duplicates == 3
    assert np.array_equal(parts.members, expected.members)
    missing = 0
    for name in PARTS:
        left = getattr(parts, name)
        assert np.isin(left, getattr(expected, name)).all()
        missing += len(getattr(expected, name)) - len(left)
    assert missing == parts.left_out
    assert missing == sum(expected_shared(copied, expected))


def expected_shared(images: Images, parts: Split) -> list[int]:
    """For each two equal images whether these parts, drawn from unlike ones, keep them apart."""
    part_of = {position: name for name in PARTS for position in getattr(parts, name).tolist()}
    pairs = [(3, 600), (14, 601), (15, 602)]
    assert all(torch.equal(images.x[a], images.x[b]) for a, b in pairs)
    return [a in part_of and b in part_of and part_of[a] != part_of[b] for a, b in pairs]


def test_official_test_images_that_are_trained_on_are_left_out():
    train, test = make_images(200), make_images(40, seed=1)
    alike = Images(torch.cat([test.x[:-4], train.x[:4]]), test.y, test.classes)
    parts = split(Dataset("leaking", train, alike), clients=2)
    in_parts = np.isin(np.arange(4), np.concatenate([parts.members, parts.nonmembers, parts.auxiliary]))
    assert parts.test.tolist() == [*range(200, 236), *(236 + np.flatnonzero(~in_parts))]
    assert parts.left_out == in_parts.sum() > 0


def test_without_duplicates_the_draw_is_what_it_ever_was(monkeypatch):
    data = load("digits")
    parts = split(data, clients=10, seed=3)
    monkeypatch.setattr("glasshouse.data.split.first_copies", lambda x: np.arange(len(x)))
    unaware = split(data, clients=10, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(parts.clients, unaware.clients))
    assert all(np.array_equal(getattr(parts, name), getattr(unaware, name)) for name in PARTS)
    assert (parts.duplicates, parts.left_out, parts.shared_images()) == (0, 0, {})


def test_a_split_from_positions_says_which_parts_share_images():
    pool = repeated(make_images(10), 2)
    parts = Split(
        pool,
        (np.array([0, 1, 2]), np.array([3, 11])),  # 11 is a copy of 1
        nonmembers=np.array([10, 12, 4, 14]),  # copies of 0 and 2, and 4 twice
        auxiliary=np.array([5]),
        test=np.array([15, 13]),  # copies of 5 and 3
    )
    assert parts.shared_images() == {
        ("members", "nonmembers"): 2,
        ("members", "test"): 1,
        ("auxiliary", "test"): 1,
        ("a client", "another client"): 1,
    }


def test_a_part_of_nothing_but_copies_is_refused():
    images = make_images(100)
    with pytest.raises(BadInput, match="each of the 100 images for test has a copy in another part"):
        split(Dataset("the same", images, images), clients=2)
    one = Images(images.x[:1].repeat(100, 1, 1, 1), images.y, images.classes)
    with pytest.raises(BadInput, match="no image has few enough copies for 50 members"):
        split(Dataset("one image", one), clients=2)


def test_equal_pixels_are_found_whatever_their_zeros_and_their_order_in_memory():
    x = make_images(6).x[:, :, :4, :4].repeat(1, 3, 1, 1)
    x[0, 0, 0, 0], x[3] = 0.0, x[0]
    x[3, 0, 0, 0] = -0.0
    expected = [0, 1, 2, 0, 4, 5]
    assert first_copies(x).tolist() == expected
    assert first_copies(x.contiguous(memory_format=torch.channels_last)).tolist() == expected


def test_the_example_in_the_docstring_holds():
    assert doctest.testmod(duplicates).failed == 0


def test_sixty_thousand_images_are_compared_in_two_seconds():
    x = torch.rand(60000, 1, 28, 28)
    began = time.process_time()
    assert np.array_equal(first_copies(x), np.arange(60000))
    assert time.process_time() - began < 2

"""Data that name their clients: who holds what, and what is held out of each."""

import numpy as np
import pytest
import torch
from conftest import make_images

from glasshouse.data.dataset import Dataset
from glasshouse.data.dealing import dealt, with_the_rest
from glasshouse.data.ids import checked_ids, numbered
from glasshouse.data.images import Images
from glasshouse.data.sources import as_dataset, load
from glasshouse.data.split import Split, as_given, split
from glasshouse.errors import BadInput

SIZES = (120, 90, 70, 60, 50, 40, 30, 30, 20, 20, 12, 10)
HOSPITALS = np.repeat([f"hospital {k}" for k in range(1, 13)], SIZES)
PARTS = ("members", "nonmembers", "auxiliary", "test")
MARKS = np.array(["member", "non-member", "auxiliary", "test"])


def hospitals(seed: int = 0, **more) -> Dataset:
    """552 different images of 12 unequal hospitals, in a random order."""
    order = np.random.default_rng(seed).permutation(len(HOSPITALS))
    return Dataset("hospitals", make_images(len(HOSPITALS)), clients=HOSPITALS[order], **more)


def counts(data: Dataset, positions: np.ndarray) -> np.ndarray:
    """How many of the images at `positions` each hospital has, in the order of their numbers."""
    names, number_of = numbered(data.clients)
    return np.bincount(number_of[positions], minlength=len(names))


def test_twelve_hospitals_are_twelve_clients_and_each_holds_some_images_out():
    data = hospitals()
    parts = split(data)
    assert parts.names == tuple(f"hospital {k}" for k in range(1, 13))
    assert [len(part) for part in (parts.members, parts.nonmembers, parts.auxiliary, parts.test)] == [
        276,
        110,
        55,
        110,
    ]
    for client, name in zip(parts.clients, parts.names):
        assert set(data.clients[client]) == {name}
    for part, share in zip(PARTS, (0.5, 0.2, 0.1, 0.2)):
        assert np.abs(counts(data, getattr(parts, part)) - share * np.array(SIZES)).max() <= 2


def test_the_hold_outs_of_a_client_have_its_classes_in_proportion():
    rng = np.random.default_rng(0)
    owner = np.repeat([0, 1], [2000, 1000])
    y = np.where(owner == 0, rng.choice(4, 3000, p=[0.7, 0.2, 0.1, 0]), rng.choice(4, 3000))
    for part in dealt([1500, 600, 300, 600], owner, y, rng):
        for client in (0, 1):
            drawn = np.bincount(y[part][owner[part] == client], minlength=4) / (owner[part] == client).sum()
            there = np.bincount(y[owner == client], minlength=4) / (owner == client).sum()
            assert np.abs(drawn - there).max() < 0.01


@pytest.mark.parametrize("together", [False, True])
def test_every_image_is_as_likely_as_any_other_to_be_a_member(together):
    owner = np.repeat([0, 1, 2], [30, 20, 10])
    y = np.tile(np.repeat(np.arange(10), 2), 3)
    pairs = np.arange(60) // 2 if together else None
    rng = np.random.default_rng(0)
    drawn = np.zeros(60)
    for _ in range(2000):
        drawn[dealt([30, 12, 6, 12], owner, y, rng, pairs)[0]] += 1
    assert np.abs(drawn / 2000 - 0.5).max() < 5 * np.sqrt(0.25 / 2000)


def test_classes_of_equal_clients_do_not_fall_in_step_with_the_turns_of_the_parts():
    # Ten clients, each with two images of ten classes: 20 images, twice as many as the turns take to repeat.
    owner, y = np.repeat(np.arange(10), 20), np.tile(np.repeat(np.arange(10), 2), 10)
    variances = []
    for seed in range(20):
        nonmembers = dealt([100, 40, 20, 40], owner, y, np.random.default_rng(seed))[1]
        variances.append(np.bincount(y[nonmembers], minlength=10).var())
    # 4 of 10 classes of every client: a binomial count of variance 2.4. In step the same 4 everywhere: 24.
    assert np.mean(variances) < 4


@pytest.mark.parametrize("seed", range(5))
def test_users_of_a_client_stay_in_one_part_and_small_clients_still_train(seed):
    rng = np.random.default_rng(seed)
    data = hospitals(seed, users=rng.integers(0, 150, len(HOSPITALS)))
    parts = split(data, seed=seed)
    groups = [set(data.users[getattr(parts, part)]) for part in PARTS]
    assert len(set.union(*groups)) == sum(map(len, groups))
    assert len(parts.clients) == 12
    assert parts.held_out == "users-within-clients"
    assert len(parts.members) == pytest.approx(276, abs=60)


def test_clients_of_one_image_train_on_it():
    owner = np.concatenate([np.arange(20), np.full(80, 20)])
    for seed in range(20):
        drawn = dealt([30, 30, 20, 20], owner, np.zeros(100, int), np.random.default_rng(seed))
        assert [len(part) for part in drawn] == [30, 30, 20, 20]
        assert set(owner[drawn[0]]) == set(range(21))


def test_official_test_images_stay_the_test_images():
    data = hospitals(test=make_images(40, seed=1))
    parts = split(data)
    assert parts.test.tolist() == list(range(len(HOSPITALS), len(HOSPITALS) + 40))
    assert counts(data, parts.nonmembers).min() > 0
    assert parts.official_test


def test_whole_clients_are_held_out_where_that_is_asked_for():
    data = hospitals()
    parts = split(data, holdout="whole-clients")
    groups = [set(data.clients[getattr(parts, part)]) for part in PARTS]
    assert len(set.union(*groups)) == sum(map(len, groups))
    assert set(parts.names) == groups[0]
    assert sum(map(len, groups)) == 12  # none is left out for being larger than what is left of a part
    sizes = [len(getattr(parts, part)) for part in PARTS]
    assert sizes == pytest.approx([276, 110, 55, 110], abs=60)
    few = split(data, holdout="whole-clients", members=100, nonmembers=60, auxiliary=30, test=60)
    assert len(few.members) <= 130
    assert parts.whole_groups
    assert len(split(data, holdout="whole-clients", clients=len(parts.clients)).clients) == len(groups[0])


def test_a_client_too_large_for_any_part_goes_where_most_is_lacking():
    owner = np.repeat([0, 1, 2], [50, 50, 10])
    drawn = [np.arange(50), np.array([], int)]
    assert [len(part) for part in with_the_rest(drawn, [60, 40], owner)] == [60, 50]
    assert [len(part) for part in with_the_rest(drawn, [50, 40], owner)] == [50, 50]  # 20 were to be left out


def test_each_user_is_a_client_with_hold_outs_of_its_own_unless_whole_users_are_asked_for():
    data = Dataset("users", make_images(len(HOSPITALS)), users=HOSPITALS)
    within = split(data, partition="by-user")
    assert within.names == tuple(f"hospital {k}" for k in range(1, 13))
    assert not within.whole_groups
    for part in PARTS:
        assert len(set(data.users[getattr(within, part)])) == 12
    whole = split(data, partition="by-user", holdout="whole-clients")
    assert 0 < len(whole.clients) < 12
    assert whole.whole_groups
    grouped = split(data, partition="by-user", clients=3)
    assert len(grouped.clients) == 3
    assert grouped.held_out == "users-within-clients"
    owners = [set(data.users[getattr(grouped, part)]) for part in PARTS]
    assert len(set.union(*owners)) == sum(map(len, owners))


def test_marked_parts_are_taken_literally():
    marks = np.random.default_rng(0).choice(MARKS, len(HOSPITALS), p=[0.6, 0.2, 0.1, 0.1])
    marks[[np.flatnonzero(hospitals().clients == f"hospital {k}")[0] for k in range(1, 13)]] = "member"
    data = hospitals(parts=marks)
    parts = split(data, seed=5)
    for part, mark in zip(PARTS, MARKS):
        assert np.array_equal(getattr(parts, part), np.flatnonzero(marks == mark))
    assert all(len(set(data.clients[client])) == 1 for client in parts.clients)
    assert len(parts.clients) == 12


def test_marked_parts_without_clients_are_divided_like_other_data():
    marks = np.repeat(MARKS, 50)
    parts = split(Dataset("marked", make_images(200), parts=marks), clients=5)
    assert [len(client) for client in parts.clients] == [10] * 5
    assert np.array_equal(parts.test, np.arange(150, 200))


def test_no_two_parts_share_an_image_whatever_clients_and_marks_say():
    x = make_images(len(HOSPITALS))
    twice = Images(torch.cat([x.x[:276], x.x[:276]]), x.y, x.classes)
    drawn = split(Dataset("twice", twice, clients=HOSPITALS))
    marks = np.tile(MARKS, len(HOSPITALS) // 4)
    given = split(Dataset("marked twice", twice, parts=np.roll(marks, 1)))
    assert given.duplicates == drawn.duplicates == 276
    for parts in (drawn, given):
        assert set(parts.shared_images()) <= {("a client", "another client")}


def test_a_split_of_ones_own_keeps_its_clients_and_loses_images_that_two_parts_share():
    images = make_images(60)
    pool = Images(torch.cat([images.x, images.x[:2]]), torch.cat([images.y, images.y[:2]]), images.classes)
    own = Split(
        pool,
        (np.arange(20), np.arange(20, 30)),
        np.array([30, 31, 60]),
        np.arange(40, 50),
        np.array([50, 51, 52, 61]),
    )
    kept = as_given(own)
    assert [client.tolist() for client in kept.clients] == [client.tolist() for client in own.clients]
    assert (kept.nonmembers.tolist(), kept.test.tolist(), kept.left_out) == ([30, 31], [50, 51, 52], 2)
    lists = Split(pool, (list(range(20)), torch.arange(20, 30)), [30, 31, 60], [], range(50, 52))
    assert np.array_equal(lists.members, own.members)
    with pytest.raises(BadInput, match="client 0: no array of positions"):
        Split(pool, ([[1], [2, 3]],), [30], [], [50])
    with pytest.raises(BadInput, match="no test images"):
        as_given(Split(pool, (np.arange(20),), np.array([30]), np.array([40]), np.array([], int)))


def test_ids_stand_in_natural_order_and_may_be_numbers_strings_or_objects_of_one_kind():
    names, number_of = numbered(np.array(["h10", "h9", "h010", "h9a"]))
    assert names == ("h9", "h9a", "h010", "h10")
    assert number_of.tolist() == [3, 0, 2, 1]
    assert numbered(np.array([10, 9, -1]))[0] == ("-1", "9", "10")
    assert checked_ids(np.array(["a", "b"], dtype=object), 2, "client", "mine").dtype.kind == "U"
    assert checked_ids(np.array([1, 2], dtype=object), 2, "client", "mine").dtype.kind == "i"
    assert checked_ids(torch.tensor([1, 2]), 2, "client", "mine").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (np.arange(5), "client of shape (5,) for 6 training images"),
        (np.arange(6.0), "client ids of type float64, which may hold NaN"),
        (np.array([1, 1, np.nan, 2, 2, 2]), "may hold NaN"),
        (np.array(["a", np.nan, "b", "b", "c", "c"], dtype=object), "such as nan of image 1"),
        (np.array(["a", None, "b", "b", "c", "c"], dtype=object), "such as None of image 1"),
        (np.array([["a"]] * 6), "client of shape (6, 1)"),
        (np.array(["a", "", "b", "b", "c", "c"]), "client of image 1 is empty"),
        (np.array([True] * 6), "client ids of type bool"),
        ([[1], [2, 3]], "client is no array"),
    ],
)
def test_ids_that_cannot_be_used_are_refused_in_one_line(ids, says):
    with pytest.raises(BadInput) as refused:
        as_dataset("mine", {"x": np.random.rand(6, 8, 8), "y": np.arange(6) % 2, "client": ids}, "mine")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (np.arange(5), "client of shape (5,) for 6 training images"),
        (np.full(6, np.nan), "client ids of type float64"),
        (np.array(["a", None] * 3, dtype=object), "client holds objects, and loading them could run code"),
    ],
)
def test_the_ids_of_a_file_are_refused_before_its_images_are_read(tmp_path, monkeypatch, ids, says):
    np.savez(tmp_path / "d.npz", x=np.zeros((6, 8, 8)), y=np.arange(6) % 2, client=ids)

    def unread(*_, **__):
        raise AssertionError

    monkeypatch.setattr(np.lib.format, "read_array", unread)
    with pytest.raises(BadInput) as refused:
        load(str(tmp_path / "d.npz"))
    assert says in str(refused.value)


def test_a_file_a_dictionary_and_a_dataset_say_the_same(tmp_path):
    arrays = {
        "x": np.random.default_rng(0).random((40, 8, 8)),
        "y": np.arange(40) % 2,
        "client": np.arange(40) // 10,
        "part": np.tile(MARKS, 10),
    }
    np.savez(tmp_path / "d.npz", **arrays)
    read, given = load(str(tmp_path / "d.npz")), as_dataset("d", arrays, "d")
    assert np.array_equal(read.clients, given.clients)
    assert np.array_equal(read.parts, given.parts)
    assert split(read).names == split(given).names == ("0", "1", "2", "3")


BARE = np.where(HOSPITALS == "hospital 12", "test", np.tile(MARKS, len(HOSPITALS) // 4))


@pytest.mark.parametrize(
    ("data", "asked", "says"),
    [
        ({}, {"clients": 6}, "6 clients asked for, but the data name 12; leave the number of clients out"),
        ({}, {"partition": "iid"}, "partition 'iid', but the data name 12 clients; leave the partition out"),
        ({}, {"members": 11}, "11 members for 12 clients"),
        ({}, {"clients": 12, "holdout": "whole-clients"}, "12 clients asked for, but 'by-client' gives the"),
        ({"clients": None}, {"holdout": "within-clients"}, "but the data name no clients"),
        ({"clients": None}, {"partition": "by-client"}, "the data name no clients"),
        ({"clients": None}, {"partition": "by-user"}, "the data name no users"),
        ({"parts": BARE}, {}, "client 'hospital 12' has 10 images, none of them marked member"),
        ({"parts": np.full(552, "members")}, {}, "unknown part 'members' of image 0; did you mean 'member'?"),
        ({"parts": np.full(552, "x")}, {}, "choose among member, non-member, auxiliary, test"),
        ({"parts": np.full(552, "test")}, {}, "no image is marked member"),
        ({"parts": np.full(552, "member")}, {}, "no image is marked test"),
        ({"parts": np.full(551, "member")}, {}, "part of shape (551,) for 552 training images"),
        ({"parts": np.full(552, "member")}, {"members": 20}, "20 members asked for, but the data mark"),
        ({"parts": np.full(552, "member")}, {"holdout": "whole-clients"}, "leave holdout out"),
        ({"parts": np.full(552, "test"), "test": make_images(8, seed=3)}, {}, "test images beside"),
    ],
)
def test_what_contradicts_the_data_is_refused_in_one_line(data, asked, says):
    with pytest.raises(BadInput) as refused:
        split(Dataset(**{"name": "d", "train": make_images(552), "clients": HOSPITALS, **data}), **asked)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)

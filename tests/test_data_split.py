import numpy as np
import pytest
import torch

from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.data.split import Split, split
from glasshouse.data.stratify import stratified
from glasshouse.errors import BadInput

PARTS = ("members", "nonmembers", "auxiliary", "test")


def images(y: np.ndarray, classes: int | None = None, darkest: float = 0) -> Images:
    """One-pixel images, each as bright as its position says."""
    x = torch.linspace(darkest, 1 - darkest, len(y)).reshape(-1, 1, 1, 1)
    return Images(x, torch.from_numpy(y.astype(np.int64)), classes or int(y.max()) + 1)


def dataset(seed: int, *, test: bool = False, users: bool = False, size: int = 400) -> Dataset:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(5), 8), rng.choice(5, size - 40, p=[0.5, 0.2, 0.15, 0.1, 0.05])])
    official = images(np.arange(100) % 5, darkest=1e-4) if test else None
    return Dataset("random", images(y), official, rng.integers(0, 80, size) if users else None)


def parts_of(parts: Split) -> dict[str, np.ndarray]:
    return {name: getattr(parts, name) for name in PARTS}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("test", [False, True])
@pytest.mark.parametrize("users", [False, True])
def test_parts_are_disjoint_and_have_every_class(seed, test, users):
    data = dataset(seed, test=test, users=users)
    parts = split(data, clients=4, partition="dirichlet(alpha=0.5)", seed=seed)
    everything = np.concatenate([*parts.clients, parts.nonmembers, parts.auxiliary, parts.test])
    assert len(np.unique(everything)) == len(everything)
    for name in PARTS:
        assert (parts.images(name).label_counts() > 0).all()
    assert np.array_equal(parts.members, np.sort(np.concatenate(parts.clients)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("test", [False, True])
def test_no_user_is_in_two_parts(seed, test):
    data = dataset(seed, test=test, users=True)
    parts = split(data, clients=3, seed=seed)
    drawn = [positions for positions in parts_of(parts).values() if positions.max() < len(data.train)]
    assert len(drawn) == (3 if test else 4)
    owners = [set(data.users[positions]) for positions in drawn]
    assert len(set.union(*owners)) == sum(map(len, owners))


def test_default_sizes_are_the_stated_shares():
    sizes = {name: len(part) for name, part in parts_of(split(dataset(0), clients=4)).items()}
    assert sizes == {"members": 200, "nonmembers": 80, "auxiliary": 40, "test": 80}
    sizes = {name: len(part) for name, part in parts_of(split(dataset(0, test=True), clients=4)).items()}
    assert sizes == {"members": 200, "nonmembers": 100, "auxiliary": 100, "test": 100}


def test_sizes_asked_for_are_kept_and_the_others_share_what_is_left():
    parts = split(dataset(0), clients=4, members=300, auxiliary=0)
    sizes = {name: len(part) for name, part in parts_of(parts).items()}
    assert sizes == {"members": 300, "nonmembers": 50, "auxiliary": 0, "test": 50}


def test_official_test_images_are_the_only_test_images():
    data = dataset(0, test=True)
    assert np.array_equal(split(data, clients=2).test, np.arange(400, 500))
    some = split(data, clients=2, test=25)
    assert some.test.min() >= 400
    assert some.images("test").label_counts().tolist() == [5] * 5


def test_positions_lead_to_the_right_images():
    data = dataset(0, test=True)
    parts = split(data, clients=3)
    assert torch.equal(parts.images("test").x, data.test.x)
    assert torch.equal(parts.client(1).x, data.train.x[parts.clients[1]])
    assert torch.equal(parts.client(1).y, data.train.y[parts.clients[1]])


def test_the_seed_decides_the_split():
    data = dataset(0, users=True)
    first, again, other = (split(data, clients=3, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(parts_of(first)[name], parts_of(again)[name]) for name in PARTS)
    assert not np.array_equal(first.members, other.members)


def test_members_can_be_divided_by_user():
    data = dataset(0, users=True)
    parts = split(data, clients=None, partition="by-user")
    assert all(len(np.unique(data.users[part])) == 1 for part in parts.clients)


def test_the_pool_is_a_view_when_train_and_test_lie_side_by_side():
    pool = images(np.arange(50) % 5)
    side_by_side = Dataset("views", pool[:30], pool[30:])
    assert side_by_side.pool.x.data_ptr() == pool.x.data_ptr()
    assert torch.equal(side_by_side.pool.x, pool.x)
    the_other_way = Dataset("views", pool[30:], pool[:30])
    assert torch.equal(the_other_way.pool.x, torch.cat([pool.x[30:], pool.x[:30]]))


@pytest.mark.parametrize("test", [False, True])
def test_test_parts_are_drawn_from_the_official_test_images_where_there_are_some(test):
    data = dataset(0, test=test)
    drawn = data.draw([40, 60], [30, 20], np.random.default_rng(0))
    assert [len(part) for part in drawn] == [40, 60, 30, 20]
    assert len(np.unique(np.concatenate(drawn))) == 150
    assert max(map(max, drawn[:2])) < len(data.train)
    assert (min(map(min, drawn[2:])) >= len(data.train)) == test
    assert all((data.pool[part].label_counts() > 0).all() for part in drawn)


@pytest.mark.parametrize("seed", range(10))
def test_stratified_parts_have_exact_sizes_and_proportions(seed):
    rng = np.random.default_rng(seed)
    y = rng.choice(6, 600, p=[0.4, 0.3, 0.15, 0.1, 0.03, 0.02])
    sizes = rng.multinomial(600, [0.4, 0.3, 0.2, 0.1])[:3]
    shares = np.bincount(y, minlength=6) / 600
    for part, size in zip(stratified(y, sizes, rng), sizes):
        assert len(part) == size
        assert np.abs(np.bincount(y[part], minlength=6) - size * shares).max() < 4


def test_a_class_of_four_images_is_in_all_four_parts():
    y = np.array([0] * 96 + [1] * 4)
    for part in stratified(y, [70, 10, 10, 10], np.random.default_rng(0)):
        assert (y[part] == 1).sum() == 1


def test_large_and_small_users_are_spread_over_the_parts_alike():
    users = np.concatenate([np.arange(1000), np.repeat(np.arange(1000, 1500), 4)])
    y = np.arange(3000) % 3
    for part in stratified(y, [1500, 750, 750], np.random.default_rng(0), users):
        of_large = (users[part] >= 1000).mean()
        assert of_large == pytest.approx(2 / 3, abs=0.02)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"members": 401}, "401 members of 400 images"),
        ({"members": 300, "nonmembers": 101}, "300 members \\+ 101 nonmembers"),
        ({"members": 400}, "leave too few"),
        ({"members": 0}, "0 members"),
        ({"nonmembers": -1}, "-1 nonmembers"),
        ({"members": 3}, "4 clients for 3 images"),
        ({"test": 2.5}, "2.5 test"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, says):
    with pytest.raises(BadInput, match=says):
        split(dataset(0), clients=4, **sizes)


def test_more_test_images_than_there_are_are_refused():
    with pytest.raises(BadInput, match="101 test images asked for, 100 there"):
        split(dataset(0, test=True), clients=4, test=101)


def test_users_too_large_for_a_part_are_refused():
    data = Dataset("two users", images(np.arange(100) % 5), None, np.arange(100) % 2)
    with pytest.raises(BadInput, match="no user has few enough images"):
        split(data, clients=1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clients": (np.array([0, 1]), np.array([1, 2]))}, "image 1 is in client 0 and in client 1"),
        ({"clients": (np.array([0]), np.array([], int))}, "client 1 has no images; ask for fewer clients"),
        ({"clients": ()}, "at least one client"),
        ({"nonmembers": np.array([0])}, "image 0 is in client 0 and in nonmembers"),
        ({"auxiliary": np.array([7])}, "image 7 is in auxiliary and in test"),
        ({"test": np.array([20])}, "must lie in 0..19"),
        ({"test": np.array([-1])}, "must lie in 0..19"),
        ({"test": np.array([8, 8])}, "twice"),
        ({"test": np.array([8.0])}, "whole numbers"),
    ],
)
def test_a_split_whose_parts_overlap_is_refused(change, says):
    parts = {
        "clients": (np.array([0, 1]), np.array([2])),
        "nonmembers": np.array([3, 4]),
        "auxiliary": np.array([5]),
        "test": np.array([7]),
    }
    pool = images(np.arange(20) % 2)
    Split(pool, **parts)
    with pytest.raises(BadInput, match=says):
        Split(pool, **(parts | change))


def test_an_unknown_part_is_refused():
    with pytest.raises(BadInput, match="no part 'train'"):
        split(dataset(0), clients=2).images("train")

import subprocess
import sys

import numpy as np
import pytest

from glasshouse.data.partitions import by_user, dirichlet, iid, partition, shards
from glasshouse.data.registry import PARTITIONS
from glasshouse.errors import BadInput

SEEDS = range(20)
SPECS = ["iid", "shards(per_client=2)", "dirichlet(alpha=0.5)", "dirichlet(alpha=1e-9)", "by-user"]


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Labels, users and a number of clients that any partition can serve."""
    rng = np.random.default_rng(seed)
    images = int(rng.integers(20, 400))
    y = rng.choice(rng.integers(1, 12), images)
    users = rng.integers(0, 15, images)
    return y, users, int(rng.integers(1, len(np.unique(users)) // 2 + 1))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_image_goes_to_exactly_one_client_and_no_client_is_empty(spec, seed):
    y, users, clients = random_case(seed)
    parts = partition(spec, y, clients, seed, users)
    assert len(parts) == clients
    assert all(len(part) for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))


@pytest.mark.parametrize("spec", SPECS)
def test_the_same_seed_gives_the_same_partition_and_another_seed_another(spec):
    y, users, _ = random_case(3)
    first, again, other = (partition(spec, y, 4, seed, users) for seed in (7, 7, 8))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, other))


@pytest.mark.parametrize("seed", SEEDS)
def test_iid_shares_differ_in_size_by_one_at_most(seed):
    y, _, clients = random_case(seed)
    sizes = [len(part) for part in iid(y, clients, seed)]
    assert max(sizes) - min(sizes) <= 1


def test_iid_shares_have_the_classes_in_proportion():
    y = np.repeat(np.arange(10), 1000)
    for part in iid(y, 10, 0):
        # 1000 drawn of 10000 without replacement: 100 of each class, standard deviation 9.
        assert np.abs(np.bincount(y[part], minlength=10) - 100).max() < 45


@pytest.mark.parametrize("per_client", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_shards_give_a_client_no_more_classes_than_shards(per_client, seed):
    # Shards of 20 images divide classes of 120 without remainder, so each shard has one class.
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(10), 120))
    parts = shards(y, 60 // per_client, seed, per_client)
    assert {len(part) for part in parts} == {20 * per_client}
    assert all(len(np.unique(y[part])) <= per_client for part in parts)


def test_the_usual_shards_are_two_hundred_two_per_device():
    y = np.repeat(np.arange(10), 600)
    parts = shards(y, 100, 0)
    assert len(parts) == 100
    assert all(len(np.unique(y[part])) <= 2 for part in parts)


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 0.01, 0.5, 100, 1e6])
@pytest.mark.parametrize("minimum", [1, 5])
def test_dirichlet_gives_each_client_the_minimum_for_any_alpha(alpha, minimum):
    y = np.repeat(np.arange(3), 20)
    parts = dirichlet(y, 12, 0, alpha, minimum)
    assert min(len(part) for part in parts) >= minimum
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60))


def test_dirichlet_terminates_when_every_client_must_have_exactly_the_minimum():
    assert {len(part) for part in dirichlet(np.zeros(40, int), 8, 0, 0.01, minimum=5)} == {5}


def test_dirichlet_clients_grow_alike_with_alpha():
    y = np.repeat(np.arange(10), 500)

    def unlikeness(alpha: float) -> float:
        shares = [np.bincount(y[part], minlength=10) / len(part) for part in dirichlet(y, 10, 0, alpha)]
        return float(np.abs(np.array(shares) - 0.1).mean())

    small, middle, large = unlikeness(0.05), unlikeness(1), unlikeness(1000)
    assert small > middle > large
    assert large < 0.01


def test_dirichlet_shares_have_the_variance_of_the_distribution():
    # For the symmetric Dirichlet over k clients a share has variance (k - 1) / (k^2 (k alpha + 1)).
    clients, alpha, classes = 5, 1.0, 400
    y = np.repeat(np.arange(classes), 200)
    parts = dirichlet(y, clients, 0, alpha)
    shares = np.array([np.bincount(y[part], minlength=classes) for part in parts]) / 200
    expected = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert shares.var() == pytest.approx(expected, rel=0.1)


def test_each_user_is_a_client_unless_fewer_clients_are_asked_for():
    users = np.array(["ann", "bob", "ann", "cy", "dee", "bob"])
    assert [part.tolist() for part in by_user(users, None, 0)] == [[0, 2], [1, 5], [3], [4]]
    grouped = by_user(users, 2, 0)
    assert [len(np.unique(users[part])) for part in grouped] == [2, 2]
    assert not set(users[grouped[0]]) & set(users[grouped[1]])


@pytest.mark.parametrize(
    ("spec", "clients", "says"),
    [
        ("iid", 31, "31 clients for 30 images"),
        ("iid", 0, "0 clients"),
        ("iid", None, "number of clients"),
        ("iid(alpha=1)", 2, "its options: none"),
        ("shards(per_client=16)", 2, "per_client 16"),
        ("shards(per_client=0)", 2, "per_client = 0"),
        ("dirichlet(alpha=0)", 2, "alpha = 0"),
        ("dirichlet(alpha=-1.0)", 2, "alpha = -1.0"),
        ("dirichlet(alpha=1e999)", 2, "alpha = inf"),
        ("dirichlet(alpha='x')", 2, "alpha = 'x'"),
        ("dirichlet(minimum=16)", 2, "minimum 16"),
        ("dirichlet(beta=1)", 2, "alpha, minimum"),
        ("dirichlet(0.5)", 2, "name(option=value"),
        ("by-user", 2, "no users"),
        ("dirichlett", 2, "did you mean 'dirichlet'"),
    ],
)
def test_a_partition_that_cannot_be_made_is_refused_in_one_line(spec, clients, says):
    with pytest.raises(BadInput) as caught:
        partition(spec, np.arange(30) % 3, clients, 0)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_clients_than_users_are_refused():
    with pytest.raises(BadInput, match="5 clients for 2 users"):
        partition("by-user", np.zeros(10, int), 5, 0, np.arange(10) % 2)


def test_every_registered_partition_says_what_it_does():
    assert all(PARTITIONS.load(name).__doc__ for name in PARTITIONS)


def test_the_registries_import_neither_torch_nor_numpy():
    script = "import sys, glasshouse.data.registry; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0

import numpy as np
import pytest

from glasshouse.data.duplicates import first_copies
from glasshouse.data.sources import fetch, load
from glasshouse.data.split import split

pytestmark = pytest.mark.real_data

MNIST = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
HAM10000 = [327, 514, 1099, 115, 6705, 142, 1113]


@pytest.mark.parametrize(
    ("name", "shape", "train", "test"),
    [
        ("mnist", (1, 28, 28), MNIST, MNIST_TEST),
        ("fashion-mnist", (1, 28, 28), [6000] * 10, [1000] * 10),
        ("cifar10", (3, 32, 32), [5000] * 10, [1000] * 10),
        ("cifar100", (3, 32, 32), [500] * 100, [100] * 100),
        ("tiny-imagenet-20", (3, 64, 64), [500] * 20, [50] * 20),
    ],
)
def test_a_named_set_has_its_published_shape_and_class_counts(name, shape, train, test):
    data = load(name)
    assert data.train.shape == data.test.shape == shape
    assert data.train.label_counts().tolist() == train
    assert data.test.label_counts().tolist() == test
    assert len(data.train.names) == len(train)
    assert data.train.x.min() == 0
    assert data.train.x.max() == 1


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "hmnist"])
def test_the_files_of_a_named_set_have_their_published_checksums(name):
    assert fetch(name).name == name


def test_cifar10_has_the_channel_means_that_are_usually_stated():
    means = load("cifar10").train.x.mean((0, 2, 3))
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)


def test_mnist_has_the_mean_and_deviation_that_are_usually_stated():
    x = load("mnist").train.x
    assert (float(x.mean()), float(x.std())) == pytest.approx((0.1307, 0.3081), abs=1e-4)


def test_hmnist_is_divided_by_lesion_with_a_fifth_for_testing():
    data = load("hmnist")
    assert (data.train.label_counts() + data.test.label_counts()).tolist() == HAM10000
    assert len(data.test) == pytest.approx(2003, abs=10)
    shares = data.test.label_counts() / len(data.test)
    assert shares.tolist() == pytest.approx([count / 10015 for count in HAM10000], abs=0.01)
    # HAM10000 has 7,470 lesions with 1.34 images each; large ones must not gather on one side.
    assert len(data.train) / len(np.unique(data.users)) == pytest.approx(10015 / 7470, abs=0.02)


def test_no_lesion_is_both_a_members_and_a_nonmembers():
    data = load("hmnist")
    parts = split(data, clients=10, partition="dirichlet(alpha=0.5)")
    owners = [set(data.users[part]) for part in (parts.members, parts.nonmembers, parts.auxiliary)]
    assert len(set.union(*owners)) == sum(map(len, owners))
    assert (parts.images("members").label_counts() > 0).all()


@pytest.mark.parametrize(
    ("name", "duplicates"),
    [
        ("mnist", (0, 0, 0)),
        ("fashion-mnist", (0, 0, 0)),
        ("cifar10", (0, 0, 0)),
        ("cifar100", (14, 2, 10)),
        ("hmnist", (1, 0, 0)),
        ("tiny-imagenet-20", (0, 0, 0)),
    ],
)
def test_a_named_set_has_the_duplicates_that_its_table_states(name, duplicates):
    data = load(name)
    train, test = (len(part) - len(np.unique(first_copies(part.x))) for part in (data.train, data.test))
    first = first_copies(data.pool.x)
    both = np.isin(first[len(data.train) :], first[: len(data.train)]).sum()
    assert (train, test, both) == duplicates
    assert split(data, clients=10).shared_images().keys() <= {("a client", "another client")}

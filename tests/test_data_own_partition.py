"""A user's own function that divides the members among clients."""

import sys
import types

import numpy as np
import pytest
from conftest import make_images

from glasshouse.data.dataset import Dataset
from glasshouse.data.split import split
from glasshouse.errors import BadInput


@pytest.fixture
def own(monkeypatch):
    module = types.ModuleType("my_lab")
    monkeypatch.setitem(sys.modules, "my_lab", module)
    return module


def data(**more) -> Dataset:
    return Dataset("striped", make_images(200), **more)


def test_a_function_gets_what_it_names_of_the_members(own):
    seen = {}

    def divide(x, y, positions, users, names, clients, seed, parts=2):
        seen.update(x=x, y=y, positions=positions, users=users, names=names, clients=clients, seed=seed)
        return np.array_split(np.arange(len(y)), parts)

    own.divide = divide
    pool = data(users=np.arange(200) % 50)
    divided = split(pool, partition="my_lab:divide(parts=4)", seed=3)
    assert len(divided.clients) == 4
    members = seen["positions"]
    assert np.array_equal(members, divided.members)
    assert np.array_equal(seen["x"], pool.train.x.numpy()[members])
    assert np.array_equal(seen["y"], pool.train.y.numpy()[members])
    assert np.array_equal(seen["users"], members % 50)
    assert (seen["clients"], seen["names"]) == (10, ())
    assert divided.partition == "my_lab:divide(parts=4)"


def test_what_a_function_does_to_its_arrays_changes_no_data(own):
    def divide(x, y):
        x[:], y[:] = 0, 0
        return [range(len(y))]

    own.divide = divide
    pool = data()
    before = pool.train.x.clone()
    split(pool, partition="my_lab:divide")
    assert pool.train.x.equal(before)
    assert pool.train.y.max() > 0


def test_members_that_no_client_gets_are_in_no_part(own):
    own.divide = lambda y: [[0, 2], (5,)]
    divided = split(data(), partition="my_lab:divide")
    assert [len(client) for client in divided.clients] == [2, 1]
    assert len(divided.members) == 3


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda y: None, "returned None; return a list with the positions"),
        (lambda y: [], "returned []"),
        (lambda y: {0: [1]}, "return a list with the positions"),
        (lambda y: [[0], []], "client 1 gets no image"),
        (lambda y: [[0, 1], [1]], "image 1 is in client 0 and in client 1"),
        (lambda y: [[0, 0]], "client 0 names an image twice"),
        (lambda y: [[0, len(y)]], "they must lie in 0..99"),
        (lambda y: [[-1]], "they must lie in 0..99"),
        (lambda y: [[0.0, 1.0]], "whole numbers, not float64"),
        (lambda y: [np.ones(100, bool)], "whole numbers, not bool"),
        (lambda y: [[0, [1, 2]]], "client 0: no array of positions"),
        (lambda y: 1 / 0, "failed with ZeroDivisionError"),
        (lambda y: sys.exit(3), "failed with SystemExit"),
        (lambda labels: [[0]], "'labels'; it may take x, y, positions, users, names, clients, seed"),
        (type("Divide", (), {}), "is a type; name a function"),
    ],
)
def test_a_function_that_does_not_divide_is_refused_in_one_line(own, function, says):
    own.divide = function
    with pytest.raises(BadInput) as refused:
        split(data(), partition="my_lab:divide")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_and_numbers_of_clients_that_a_function_does_not_keep_are_refused(own):
    own.divide = lambda y: [[0], [1]]
    with pytest.raises(BadInput, match="unexpected keyword argument 'parts'"):
        split(data(), partition="my_lab:divide(parts=4)")
    with pytest.raises(BadInput, match="3 clients asked for, but 'my_lab:divide' gives the members to 2"):
        split(data(), partition="my_lab:divide", clients=3)
    with pytest.raises(BadInput, match="no_such_lab"):
        split(data(), partition="no_such_lab:divide")
    with pytest.raises(BadInput, match="Python's standard library"):
        split(data(), partition="os:system")

import functools
import inspect
import types

import numpy as np
import pytest
import torch
from cases import access_to, finished
from torch import Tensor, nn

from glasshouse.access import (
    AggregateAccess,
    BlindServerAccess,
    ModelAccess,
    QueryAccess,
    ServerAccess,
    UpdateAccess,
)
from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.federation.federation import Federation
from glasshouse.federation.updates import Update

KINDS = (QueryAccess, ModelAccess, UpdateAccess, AggregateAccess, BlindServerAccess, ServerAccess)


def reachable(root):
    """Every object one can get to from `root` through attributes and containers, private ones included."""
    found, waiting = {}, [root]
    while waiting:
        value = waiting.pop()
        if id(value) in found or isinstance(value, type | types.ModuleType | str | bytes | int | float):
            continue
        found[id(value)] = value
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        elif isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif inspect.ismethod(value):
            waiting.append(value.__self__)
        waiting += getattr(value, "__dict__", {}).values()
        waiting += [
            getattr(value, slot) for slot in getattr(type(value), "__slots__", ()) if hasattr(value, slot)
        ]
    return list(found.values())


@pytest.fixture
def case(engine):
    return finished(engine, rounds=2)


@pytest.mark.parametrize("kind", KINDS)
def test_no_attribute_of_an_access_object_leads_to_data_or_to_the_auditor(kind, case):
    for value in reachable(access_to(case, kind)):
        assert not isinstance(value, Images | Split | Federation | np.ndarray), type(value)
        assert type(value).__module__.split(".")[:2] != ["glasshouse", "auditing"], type(value)


def test_an_outsider_reaches_no_weights(case):
    assert not [v for v in reachable(access_to(case, QueryAccess)) if isinstance(v, Tensor | nn.Module)]


def test_a_blind_server_reaches_no_single_update(case):
    access = access_to(case, AggregateAccess)
    single = [update.delta for seen in access_to(case, UpdateAccess).rounds for update in seen.updates]
    for value in reachable(access):
        assert not isinstance(value, Update)
        if isinstance(value, Tensor):
            assert not any(value.shape == delta.shape and torch.equal(value, delta) for delta in single)


def test_a_curious_server_sees_each_update_of_each_round(case):
    rounds = access_to(case, UpdateAccess).rounds
    assert [seen.number for seen in rounds] == [0, 1]
    assert [update.client for update in rounds[0].updates] == [0, 1, 2]


def test_an_owner_cannot_change_the_model_that_is_scored(case):
    access = access_to(case, ModelAccess)
    before = [p.clone() for p in case.model.parameters()]
    with torch.no_grad():
        for p in access.model.parameters():
            p.zero_()
    assert all(torch.equal(p, kept) for p, kept in zip(case.model.parameters(), before))


def test_an_outsider_gets_probabilities(case):
    answers = access_to(case, QueryAccess).probabilities(torch.rand(5, 1, 8, 8))
    torch.testing.assert_close(answers.sum(1), torch.ones(5, dtype=torch.double))


def test_a_crafting_server_gets_what_the_clients_train_from_what_it_sends(case):
    access = access_to(case, ServerAccess)
    delivery = access.exchange(torch.zeros_like(access.current), [0, 2])
    assert delivery.clients == (0, 2)
    head_bias = access.protocol.layout.named(delivery.updates[0].delta)["3.bias"]
    assert head_bias.abs().sum() > 0
    body = access.protocol.layout.named(delivery.updates[0].delta)["1.weight"]
    assert body.abs().sum() == 0


def test_a_blind_crafting_server_gets_the_sum_of_it_and_no_update(case):
    seen = access_to(case, ServerAccess)
    blind = access_to(case, BlindServerAccess)
    vector = torch.zeros_like(seen.current)
    shown, summed = (access.exchange(vector, [0, 2]) for access in (seen, blind))
    assert summed.updates is None
    assert not [value for value in reachable(summed) if isinstance(value, Update)]
    torch.testing.assert_close(summed.mean, shown.mean, rtol=0, atol=1e-5)
    assert blind.rebuilt is None


def test_every_adversary_is_told_apart_by_its_access():
    assert len({kind.adversary for kind in KINDS}) == len(KINDS)

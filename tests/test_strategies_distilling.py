import pytest
import torch
from conftest import make_split
from teaching import BOTH, UNEQUAL, run

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import Ideal, Plain
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.history import Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.feddf import FedDF
from glasshouse.federation.strategies.recalling import FedGEN
from glasshouse.learning.engine import Engine


@BOTH
def test_the_numbers_do_not_depend_on_workers_nor_fail_where_clients_vanish(strategy):
    entries = {"split": make_split(UNEQUAL), "fraction": 0.7, "channel": Plain(dropout=0.3)}
    runs = []
    for workers in (1, 2):
        with Engine(workers) as running:
            runs.append(run(strategy, running, **entries))
    assert torch.equal(runs[0].vector, runs[1].vector)
    assert runs[0].rounds == runs[1].rounds
    with Engine(1) as running:
        assert not torch.equal(runs[0].vector, run(FedAvg(), running, **entries).vector)
    assert runs[0].vector.isfinite().all()


@BOTH
def test_an_interrupted_run_ends_with_the_same_numbers(strategy, engine, tmp_path):
    entries = {"split": make_split(UNEQUAL), "fraction": 0.7, "channel": Plain(dropout=0.3)}
    whole = run(strategy, engine, rounds=4, **entries)
    run(strategy, engine, rounds=2, record=Record(tmp_path), **entries)
    resumed = run(strategy, engine, rounds=4, record=Record(tmp_path), **entries)
    assert torch.equal(resumed.vector, whole.vector)
    assert not torch.equal(whole.vector, run(FedAvg(), engine, rounds=4, **entries).vector)
    assert resumed.memory.keys() == whole.memory.keys()
    assert all(torch.equal(resumed.memory[name], whole.memory[name]) for name in whole.memory)


@BOTH
def test_both_learn(strategy, engine):
    history = run(strategy, engine, rounds=6, split=make_split((40, 40, 40)))
    assert history.rounds[-1].acc_global > 0.9


@BOTH
@pytest.mark.parametrize("channel", [Secure(), Ideal()])
def test_channels_that_hide_single_updates_are_refused(strategy, channel, engine):
    with pytest.raises(BadInput, match="looks at every client's update"):
        run(strategy, engine, channel=channel)


@pytest.mark.parametrize(
    "spec",
    [
        "feddf(steps=-1)",
        "feddf(patience=0)",
        "feddf(batch_size=1)",
        "feddf(lr=0)",
        "feddf(lr='fast')",
        "feddf(validation=0)",
        "feddf(validation=1)",
        "fedgen(noise=0)",
        "fedgen(hidden=1.5)",
        "fedgen(generator_steps=0)",
        "fedgen(batch_size=1)",
        "fedgen(generator_lr=-1)",
        "fedgen(weight_decay=-0.1)",
        "fedgen(decay=0)",
        "fedgen(decay=1.5)",
        "fedgen(weight=-1)",
        "fedgen(diversity=-1)",
    ],
)
def test_impossible_options_are_refused(spec):
    with pytest.raises(BadInput, match="is out of range; it must be"):
        STRATEGIES.make(spec)


def test_both_go_by_their_names():
    assert STRATEGIES.make("feddf") == FedDF()
    assert STRATEGIES.make("fedgen(weight=5.0)") == FedGEN(weight=5.0)

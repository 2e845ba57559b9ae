import math

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from glasshouse.defences import make_defences
from glasshouse.defences.accounting import noise_for, spent
from glasshouse.defences.promise import Conditions
from glasshouse.errors import BadInput
from glasshouse.learning.recipe import Recipe


def conditions(**changes):
    facts = {"rounds": 10, "fraction": 1.0, "sizes": (100,) * 10, "recipe": Recipe(batch_size=20)}
    return Conditions(**facts | changes)


def promise(spec, **changes):
    (one,) = make_defences(spec).promises(conditions(**changes))
    return one


def directly(noise, rate, steps, delta):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant = PLDAccountant()
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
    return accountant.get_epsilon(delta)


def test_the_epsilon_of_dp_sgd_is_that_of_dp_accounting():
    made = promise("dp-sgd(noise=2.0,delta=1e-5)")
    assert (made.unit, made.rate, made.steps, made.sampling) == ("record", 0.2, 50, "poisson")
    assert made.epsilon == pytest.approx(directly(2.0, 0.2, 50, 1e-5), rel=1e-6)
    assert made.trust == ""


def test_the_epsilon_of_dp_fedavg_is_that_of_dp_accounting():
    made = promise("differential-privacy(noise=1.5,delta=1e-4)", fraction=0.3)
    assert (made.unit, made.rate, made.steps, made.sampling) == ("client", 0.3, 10, "poisson")
    assert made.epsilon == pytest.approx(directly(1.5, 0.3, 10, 1e-4), rel=1e-6)
    assert made.neighbours == "zero-out"


@pytest.mark.parametrize(("spec", "trusted", "neighbours"), [
    ("dp-sgd(noise=1.0)", True, "zero-out"),
    ("dp-sgd(noise=1.0,records=100)", True, "add-remove"),
    ("differential-privacy(noise=1.0)", True, "zero-out"),
    ("differential-privacy(noise=1.0,clients=10)", True, "add-remove"),
    ("differential-privacy(noise=1.0,clients=10)", False, "zero-out"),  # the server sees who takes part
])  # fmt: skip
def test_a_number_that_follows_from_the_data_is_public(spec, trusted, neighbours):
    made = promise(spec, trusted=trusted)
    assert made.neighbours == neighbours
    assert ("is public" in made.described) == (neighbours == "zero-out")


@pytest.mark.parametrize("spec", ["dp-sgd(noise=1.0)", "differential-privacy(target_epsilon=1.0)"])
def test_where_clients_report_without_noise_nothing_is_promised(spec):
    assert math.isinf(promise(spec, reports=("its loss",)).epsilon)
    assert math.isfinite(promise(spec).epsilon)


def test_many_sizes_are_accounted_for_one_by_one():
    sizes = tuple(range(20, 130, 10))
    stack = make_defences("dp-sgd(target_epsilon=3.0)")
    (settled,) = stack.settled(conditions(sizes=sizes)).defences
    each = [make_defences("dp-sgd(target_epsilon=3.0)").settled(conditions(sizes=(size,))) for size in sizes]
    assert settled.noise == pytest.approx(max(one.defences[0].noise for one in each), rel=1e-3)


def test_every_client_in_every_round_is_a_gaussian_mechanism():
    made = promise("differential-privacy(noise=8.0)")
    accountant = PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(8.0 / math.sqrt(10)))
    assert made.sampling == "all"
    assert made.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_a_cohort_of_fixed_size_is_accounted_for_as_one_with_clients_replaced():
    made = promise("differential-privacy(noise=8.0,sampling='fixed')", fraction=0.1, rounds=5)
    assert (made.sampling, made.neighbours) == ("fixed-size", "replace")
    accountant = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.GaussianDpEvent(8.0 / 2)  # one client for another moves the sum by twice the norm
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(10, 1, event), 5)
    assert made.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=0.02)
    poisson = promise("differential-privacy(noise=8.0)", fraction=0.1, rounds=5)
    assert poisson.epsilon < made.epsilon


def test_a_fixed_size_is_never_worse_than_no_amplification():
    whole, _ = spent(2.0 / 2, 1.0, 10, 1e-5, "all")
    assert spent(2.0, 0.9, 10, 1e-5, "fixed-size")[0] <= whole


def test_behind_secure_aggregation_no_draw_hides_a_client_from_the_server():
    hidden = promise("differential-privacy(noise=4.0)", fraction=0.3, trusted=False)
    assert (hidden.sampling, hidden.rate) == ("all", 1.0)
    assert hidden.epsilon > promise("differential-privacy(noise=4.0)", fraction=0.3).epsilon
    assert "seen by the server" in hidden.described
    assert "share of the noise" in hidden.described


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("name", ["dp-sgd", "differential-privacy"])
def test_the_noise_that_is_solved_for_spends_the_target(name, epsilon):
    stack = make_defences(f"{name}(target_epsilon={epsilon})")
    facts = conditions(fraction=0.5)
    (made,) = stack.promises(facts)
    assert 0.99 * epsilon < made.epsilon <= epsilon
    settled = stack.settled(facts)
    assert settled.defences[0].noise == made.noise
    assert settled.settled(conditions(rounds=500)) is settled  # what is settled does not move again


def test_the_client_for_which_it_is_worst_decides():
    unequal = promise("dp-sgd(noise=2.0)", sizes=(400, 100, 40))
    alone = promise("dp-sgd(noise=2.0)", sizes=(40,))
    assert (unequal.rate, unequal.epsilon) == (alone.rate, alone.epsilon) == (0.5, alone.epsilon)
    many = promise("dp-sgd(noise=2.0)", sizes=tuple(range(40, 400, 7)))
    each = [promise("dp-sgd(noise=2.0)", sizes=(size,)).epsilon for size in (40, 75, 166, 397)]
    assert many.epsilon >= max(each)


def test_every_round_counts_for_a_record_whoever_is_drawn():
    assert promise("dp-sgd(noise=2.0)", fraction=0.1).steps == promise("dp-sgd(noise=2.0)").steps
    assert "every round counts" in promise("dp-sgd(noise=2.0)", fraction=0.1).described


def test_a_public_number_of_records_decides_the_rate():
    assert promise("dp-sgd(noise=2.0,records=200)").rate == 0.1


def test_no_noise_promises_nothing():
    assert promise("dp-sgd(noise=0)").epsilon == math.inf
    assert promise("differential-privacy(noise=0.0)").epsilon == math.inf


def test_a_delta_above_the_share_of_one_unit_is_said():
    assert "not below 1 / 100" in promise("dp-sgd(noise=2.0,delta=0.01)").described
    assert "not below 1 / 10," in promise("differential-privacy(noise=2.0,delta=0.2)").described
    assert "not below" not in promise("dp-sgd(noise=2.0)").described


@pytest.mark.parametrize("name", ["dp-sgd", "differential-privacy"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("delta=0", "delta = 0 is out of range"),
        ("delta=1.0", "delta = 1.0 is out of range"),
        ("noise=1.0,target_epsilon=2.0", "give one of them"),
        ("target_epsilon=0", "target_epsilon = 0 is out of range"),
        ("target_epsilon=-1", "target_epsilon = -1 is out of range"),
        ("norm=0", "norm = 0 is out of range"),
    ],
)
def test_budgets_that_mean_nothing_are_refused(name, options, message):
    with pytest.raises(BadInput, match=message):
        make_defences(f"{name}({options})")


@pytest.mark.parametrize("name", ["dp-sgd", "differential-privacy"])
def test_an_epsilon_that_no_noise_reaches_is_refused(name):
    with pytest.raises(BadInput, match="target_epsilon = 1e-06 is out of reach"):
        make_defences(f"{name}(target_epsilon=1e-6)").settled(conditions())


def test_less_noise_spends_more():
    assert noise_for(1.0, 1.0, 10, 1e-5, "all") > noise_for(4.0, 1.0, 10, 1e-5, "all")
    assert spent(4.0, 0.1, 10, 1e-5, "poisson")[0] < spent(4.0, 0.1, 20, 1e-5, "poisson")[0]


def test_a_promise_says_whom_it_trusts():
    served = promise("differential-privacy(noise=4.0)")
    assert "trusting whoever sums the updates, sees each of them" in served.described
    hidden = promise("differential-privacy(noise=4.0)", trusted=False)
    assert "trusting the other clients" in hidden.described
    assert "trusting" not in promise("dp-sgd(noise=4.0)").described

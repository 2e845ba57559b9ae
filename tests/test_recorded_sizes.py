"""Clients of a record that have other numbers of samples in every round."""

import pytest
from conftest import CLASSES, SHAPE, make_model
from recorded_rounds import RECIPE

from glasshouse import Recorder
from glasshouse.access import AggregateAccess, UpdateAccess
from glasshouse.attacks.labels.counts import LabelCountsFromUpdates
from glasshouse.auditing.grants import grant
from glasshouse.auditing.recorded.case import prepare_recorded, recorded_setting
from glasshouse.auditing.requirements import check_protocol
from glasshouse.errors import reason_of


@pytest.fixture
def case(tmp_path):
    """Client a has 5 samples in the first round and 500 in the second, client b 20 in both."""
    recorder = Recorder(tmp_path / "r", shape=SHAPE, classes=CLASSES, recipe=RECIPE)
    for number, samples in ((1, 5), (2, 500)):
        with recorder.round(number, make_model().state_dict()) as seen:
            for client, count in (("a", samples), ("b", 20)):
                seen.update(client, make_model(number).state_dict(), samples=count)
    return prepare_recorded(tmp_path / "r", recorded_setting(), {}, make_model()).case


def test_a_sum_is_of_as_many_samples_as_clients_had_in_that_round(case):
    summed = grant(case, AggregateAccess).access.rounds
    assert [seen.sizes for seen in summed] == [(5, 20), (500, 20)]


@pytest.mark.parametrize(("adversary", "fewest"), [(UpdateAccess, 5), (AggregateAccess, 25)])
def test_what_an_attack_works_with_is_asked_of_the_round_with_the_fewest_samples(case, adversary, fewest):
    class Asked(LabelCountsFromUpdates):
        def cannot(self, protocol, samples):
            return f"asked of {samples}"

    assert reason_of(check_protocol, case, Asked(), adversary) == f"asked of {fewest}"

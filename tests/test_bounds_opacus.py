"""A fault of opacus that an audit finds: it divides by a batch size that tells how many records there are.

Opacus 1.0 to 1.6 takes the expected batch size from the realised number of records, while its accountant
compares data sets with one record more or less (opacus issue 819). The noise of the sum is divided, too, so
its scale gives the number of records away, however much noise there is.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from glasshouse.data.images import Images
from glasshouse.defences.accounting import spent
from glasshouse.learning.clipping import NoisySum
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.families import AnyMechanism, Gaussian
from glasshouse.measures.one_run import one_run_bound

opacus = pytest.importorskip("opacus")
pytestmark = pytest.mark.filterwarnings("ignore")

DELTA, NOISE, INPUTS = 1e-5, 7.0, 150
PUBLIC = 2


def trained_by_opacus(records, seed, divisor=None):
    """The change of the weights in one step of opacus on `records` records, and the epsilon it claims."""
    torch.manual_seed(seed)
    model = nn.Linear(INPUTS, 1, bias=False)
    before = model.weight.detach().clone()
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    data = TensorDataset(torch.full((records, INPUTS), 1 / INPUTS), torch.zeros(records, 1))
    engine = opacus.PrivacyEngine(accountant="prv")
    private, optimiser, loader = engine.make_private(
        module=model,
        optimizer=optimiser,
        data_loader=DataLoader(data, batch_size=8),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )
    if divisor is not None:
        optimiser.expected_batch_size = divisor
    for x, y in loader:
        optimiser.zero_grad()
        ((private(x) - y) ** 2).mean().backward()
        optimiser.step()
    return model.weight.detach().flatten() - before.flatten(), engine


def trained_by_glasshouse(records, seed):
    """The same with the noisy sum of Glasshouse, which is divided by a public number."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(INPUTS // 2, 2, bias=False))
    start = read_vector(model)
    x = torch.full((records, 1, 1, INPUTS // 2), 2 / INPUTS)
    images = Images(x, torch.zeros(records, dtype=torch.int64), 2)
    step = NoisySum(norm=1.0, noise=NOISE, records=PUBLIC)
    return fit(model, start, images, Recipe(batch_size=0, lr=1.0), seed, step) - start


def bound(change, trainings, family):
    """The audit of a training in which a coin decides whether a second record is there.

    Each training is one canary of a mechanism that runs them all. The score is the length of the change:
    where two records are there, opacus halves the noise.
    """
    rng = np.random.default_rng(0)
    member = rng.random(trainings) < 0.5
    scores = [-float(change(2 if inside else 1, seed).norm()) for seed, inside in enumerate(member)]
    return one_run_bound(np.array(scores), member, rng, family=family, delta=DELTA, coins=True)


@pytest.fixture(scope="module")
def claimed():
    """What opacus says that one of these trainings spends."""
    return trained_by_opacus(2, 0)[1].get_epsilon(DELTA)


def test_opacus_claims_what_dp_accounting_does(claimed):
    assert claimed == pytest.approx(spent(NOISE, 1.0, 1, DELTA, "all")[0], rel=0.05)
    assert claimed < 0.6


def test_the_audit_refutes_the_epsilon_of_opacus_which_divides_by_the_number_of_records(claimed):
    whatever = AnyMechanism(delta=DELTA)
    found = bound(lambda records, seed: trained_by_opacus(records, seed)[0], 240, whatever)
    assert found.low > 3.0
    assert found.low > 5 * claimed


@pytest.mark.parametrize("family", [AnyMechanism(delta=DELTA), Gaussian()])
def test_with_the_public_divisor_of_glasshouse_the_epsilon_stands(claimed, family):
    found = bound(trained_by_glasshouse, 240, family)
    assert found.low <= claimed


def test_with_a_public_divisor_the_epsilon_of_opacus_stands(claimed):
    found = bound(lambda records, seed: trained_by_opacus(records, seed, PUBLIC)[0], 240, Gaussian())
    assert found.low <= claimed

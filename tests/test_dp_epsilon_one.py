"""On a federation trained with an epsilon of 1 no attack of the battery beats what that epsilon allows."""

import math

import pytest
import torch

from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import MEMBERSHIP, make_setting
from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.verdicts.contradictions import contradictions
from glasshouse.verdicts.pooling import pooled

EPSILON, DELTA = 1.0, 1e-5
OTHERS = ("lira-online", "rmia-online", "bavaria-online", "gradient-alignment")
SETTING = {
    "data": {"clients": 4, "members": 160, "nonmembers": 160, "auxiliary": 160, "test": 40},
    "model": {"name": "mlp"},
    "training": {"rounds": 4, "epochs": 10, "batch_size": 10, "lr": 0.2, "local_test": 0},
    "audit": {
        "attacks": [*MEMBERSHIP, *OTHERS],
        "shadows": 4,
        "central": False,
        "curvature": 0,
        "ladder": False,
    },
}


def noise():
    """Images and labels that have nothing to do with each other: who knows one learned it by heart."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(520, 1, 8, 8, generator=rng)
    return Dataset("noise", Images(x, torch.randint(4, (520,), generator=rng), classes=4))


def allowed(metric):
    """The most that (epsilon, delta) leaves of a metric, by TPR <= e^epsilon FPR + delta and its mirror."""
    odds = math.exp(EPSILON)
    if metric.startswith("tpr-at-"):
        return odds * float(metric.removeprefix("tpr-at-").removesuffix("%-fpr")) / 100 + DELTA
    return {
        "auc": (odds + DELTA) / (1 + odds) + DELTA,  # of the ROC with a corner at FPR 1 / (1 + e^epsilon)
        "balanced-accuracy": (odds + DELTA) / (1 + odds),
        "advantage": (odds - 1 + 2 * DELTA) / (odds + 1),
        "epsilon-delta-lower-bound": EPSILON,
        "epsilon-delta-lower-bound-client": EPSILON,
    }.get(metric)


@pytest.fixture(scope="module")
def measures(tmp_path_factory):
    budget = f"target_epsilon={EPSILON},delta={DELTA}"
    # Four clients cannot hide a longer update: so much noise would leave no model.
    defences = [f"dp-sgd({budget})", f"differential-privacy(norm=0.05,{budget})"]
    setting = make_setting(SETTING | {"audit": SETTING["audit"] | {"defences": defences}})
    return pooled(
        run_audit(
            setting, dataset=noise(), out=tmp_path_factory.mktemp("dp") / "run", workers=1, quiet=True
        ).findings
    )


def test_undefended_the_same_attacks_get_more_than_epsilon_one_allows(measures):
    bare = [m for m in measures if m.row.defence == "none" and m.low is not None]
    assert any(m.low > allowed(m.row.metric) for m in bare if allowed(m.row.metric) is not None)


def test_no_attack_beats_what_epsilon_one_allows(measures):
    private = [m for m in measures if m.row.defence != "none" and allowed(m.row.metric) is not None]
    attacks = {m.row.attack.partition("(")[0] for m in private}
    assert attacks >= {*MEMBERSHIP, *OTHERS, "canary-records", "canary-clients"}
    assert [m.row for m in private if m.low is not None and m.low > allowed(m.row.metric)] == []
    spent = [m.value for m in measures if m.row.metric.startswith("epsilon-spent-")]
    assert spent == pytest.approx([EPSILON, EPSILON], rel=1e-3)
    assert contradictions(measures) == []

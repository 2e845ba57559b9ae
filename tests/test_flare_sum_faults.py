"""Sites that answer a secure sum with nonsense: left out by name, while the sum of the others opens."""

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'")

from flare_parts import packed as task_of
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.secagg.messages import Masked
from glasshouse.integrations.flare import MaskUpdates, SecureSum
from glasshouse.integrations.flare.wire import packed

pytestmark = pytest.mark.extras
SITES = ("site-1", "site-2", "site-3", "site-4")
STAGES = ("keys", "shares", "masked", "revealed")
UPDATE = 5


class Sites:
    """An engine whose sites answer in this process; `tamper` changes what site-2 answers to `stage`."""

    def __init__(self, stage=None, tamper=None, names=("site-2",)):
        self.stage, self.tamper, self.names = stage, tamper, names
        self.sites = {name: MaskUpdates() for name in SITES}
        for number, site in enumerate(self.sites.values()):
            site.log_error = lambda *what, **how: None
            site._update = torch.full((UPDATE,), float(number)), 10

    def send_aux_request(self, targets, topic, request, timeout, fl_ctx, secure=False):
        (name,) = targets
        reply = self.sites[name]._answer(topic, request, None)
        if name in self.names and request["asked"] == self.stage:
            return self.tamper(name, reply)
        return {name: reply}

    def fire_event(self, event_type, fl_ctx):
        pass


def offer(name, names=("w",), shapes=((UPDATE,),), samples=10):
    """What a site says of its update."""
    params = {"names": names, "shapes": shapes}
    return FLModel(params=params, meta={"client_name": name, "NUM_STEPS_CURRENT_ROUND": samples})


def summing_of(engine, **options):
    """The aggregator on the server of these sites, and what it logs."""
    summing, said = SecureSum(**options), []
    summing.fl_ctx = FLContext()
    summing.fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True)
    summing.warning = said.append
    return summing, said


def mean_of(engine, offers=None, **options):
    """The opened mean, and what the server logs."""
    summing, said = summing_of(engine, **options)
    for name in SITES:
        summing.accept_model((offers or {}).get(name) or offer(name))
    return summing.aggregate_model().params, said


def assert_mean(params, numbers):
    """The tensor is the mean of the updates of these sites, which hold their own number."""
    assert params.keys() == {"w"}
    np.testing.assert_allclose(params["w"], np.full(UPDATE, np.mean(numbers)), atol=1e-4)


def saying(answer):
    return lambda name, reply: {name: {"answer": answer}}


def naming(number):
    """The same answer in the name of another client."""
    return lambda name, reply: {name: {"answer": reply["answer"] | {"client": number}}}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", [99, 2, -1, "2", None])
def test_a_site_speaks_for_itself_whatever_number_it_gives_itself(stage, number):
    params, said = mean_of(Sites(stage, naming(number)))
    assert_mean(params, [0, 1, 2, 3])
    assert said == []


NONSENSE = {
    "another message": saying(packed(Masked(1, np.zeros(UPDATE + 1, np.uint32)))),
    "request": saying({"message": "Request", "survivors": [0], "dropped": []}),
    "wrong fields": saying({"message": "Keys", "client": 1, "sealing": 5, "masking": [1]}),
    "numbers for bytes": saying(
        {"message": "Shared", "client": 1, "sealed": 1, "commitments": None, "seed": 3}
    ),
    "lists for tables": saying({"message": "Revealed", "client": 1, "seeds": [], "keys": 3}),
    "unknown": saying({"message": "Popen"}),
    "unhashable": saying({"pairs": [[[], 1]]}),
    "text": saying("anything"),
    "nothing": saying(None),
    "no reply": lambda name, reply: None,
    "other reply": lambda name, reply: {name: {"other": 1}},
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_site_that_answers_nonsense_is_left_out_by_name_and_the_others_go_on(stage, nonsense):
    tamper = NONSENSE[nonsense]
    if nonsense == "another message" and stage == "masked":
        tamper = saying(packed(Masked(1, np.zeros(UPDATE, np.uint32))))  # of another length
    params, said = mean_of(Sites(stage, tamper))
    assert_mean(params, [0, 1, 2, 3] if stage == "revealed" else [0, 2, 3])
    assert any("client site-2 " in line for line in said)
    assert not any(f"client {other}" in line for line in said for other in ("site-1", "site-3", "site-4"))


def test_a_round_of_too_few_names_the_sites_that_spoilt_it():
    with pytest.raises(RoundFailed, match="client site-2 sent a vector of"):
        mean_of(Sites("masked", saying(packed(Masked(0, np.zeros(1, np.uint32))))), threshold=1)


ODD = {
    "other names": {"names": ["odd"]},
    "other shapes": {"shapes": [[UPDATE + 1]]},
    "more": {"names": ["v", "w"], "shapes": [[1], [UPDATE]]},
}


@pytest.mark.parametrize("odd", ODD)
def test_the_first_site_cannot_evict_the_others_by_odd_tensors(odd):
    params, said = mean_of(Sites(), {"site-1": offer("site-1", **ODD[odd])})
    assert_mean(params, [1, 2, 3])
    assert said == ["client site-1 is left out of the sum: it has other tensors than most"]


@pytest.mark.parametrize("odd", ODD)
def test_tensors_are_compared_with_the_model_that_was_sent(odd):
    summing, said = summing_of(Sites())
    model = task_of({"w": np.zeros(UPDATE, np.float32)}, 1)
    summing.fl_ctx.set_prop(AppConstants.TRAIN_SHAREABLE, model, private=True, sticky=False)
    summing.handle_event(AppEventType.BEFORE_TRAIN_TASK, summing.fl_ctx)
    for name in SITES[:3]:
        with pytest.raises(BadInput, match=f"client {name} has .*sent"):
            summing.accept_model(offer(name, **ODD[odd]))
    with pytest.raises(BadInput, match="at least 2 clients, 0 took part"):
        summing.aggregate_model()
    for name in SITES[1:]:
        summing.accept_model(offer(name))
    assert_mean(summing.aggregate_model().params, [1, 2, 3])
    assert said == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"names": 5}, "does not say which tensors"),
        ({"shapes": None}, "does not say which tensors"),
        ({"names": ["w", "w"], "shapes": [[1], [2]]}, "does not say which tensors"),
        ({"shapes": [[-1]]}, "does not say which tensors"),
        ({"shapes": [["5"]]}, "does not say which tensors"),
        ({"names": [], "shapes": []}, "does not say which tensors"),
        ({"samples": 0}, "has 0 samples"),
        ({"samples": 1.5}, r"has 1\.5 samples"),
        ({"samples": None}, "has None samples"),
    ],
)
def test_an_offer_that_cannot_be_read_is_rejected_by_name(change, why):
    summing, _ = summing_of(Sites())
    with pytest.raises(BadInput, match=f"client site-1 {why}"):
        summing.accept_model(offer("site-1", **change))

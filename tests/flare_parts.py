"""A FLARE federation in miniature: its network and images, and clients that train as Glasshouse's do."""

import time

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.app_common.app_constant import AppConstants
from torch import nn

from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.federation.secagg.messages import Refused
from glasshouse.integrations.flare import MaskUpdates
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive

SHAPE, CLASSES, SIZES = (1, 8, 8), 4, (30, 20, 10)
SEED = derive(0, "federation")  # that of the federation in an audit with seed 0
TRAINING = {"epochs": 2, "batch_size": 10, "lr": 0.1}
RECIPE = Recipe(**TRAINING)


class Network(nn.Sequential):
    """Its first weights are always the same."""

    def __init__(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers = nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)
        super().__init__(*layers)


def made_split():
    """Three clients, and three further parts."""
    parts = np.split(np.random.default_rng(0).permutation(150), np.cumsum([*SIZES, 30, 30]))
    rng = torch.Generator().manual_seed(1)
    y = torch.arange(150) % CLASSES
    x = 0.6 * torch.rand(150, *SHAPE, generator=rng)
    x[torch.arange(150), :, 2 * y] += 0.4
    return Split(Images(x, y, CLASSES), tuple(parts[:3]), *parts[3:])


class Training(Executor):
    """A client that trains by `fit`, with the seeds of Glasshouse's own federation.

    Client `site-4` takes part without training: what it sends is `broken`, in the first and second round.
    """

    def __init__(self, sends="WEIGHTS"):
        super().__init__()
        self.sends = sends

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        site = int(fl_ctx.get_identity_name()[-1]) - 1
        sent = from_shareable(shareable).data
        number = shareable.get_header(AppConstants.CURRENT_ROUND)
        if site == len(SIZES):
            return packed(broken(sent, number), 5)
        torch.set_num_threads(1)  # as in the engine's workers: sums of two threads round otherwise
        network, layout = Network(), Layout.of(Network())
        start = torch.cat([torch.as_tensor(sent[name]).float().reshape(-1) for name in layout.names])
        split = made_split()
        images = split.pool[split.clients[site]]
        seed = derive(derive(SEED, "round", number), "client", site)
        trained = fit(network, start, images, RECIPE, seed)
        time.sleep(0.7 * site)  # so that the server adds them up in this order
        vector = trained if self.sends == "WEIGHTS" else trained - start
        arrays = {name: tensor.numpy() for name, tensor in layout.named(vector).items()}
        return packed(arrays, len(images), self.sends)


def packed(arrays, samples, kind=DataKind.WEIGHTS):
    return DXO(kind, arrays, {MetaKey.NUM_STEPS_CURRENT_ROUND: samples}).to_shareable()


def broken(sent, number):
    """Weights with one NaN, and in the next round a tensor of another shape."""
    arrays = {name: np.array(array) for name, array in sent.items()}
    arrays["1.bias"] = np.full(16, np.nan, np.float32) if number == 0 else np.zeros((16, 2), np.float32)
    return arrays


class Craft(Filter):
    """A server that sets the first layer so that it sorts images by their brightness, from round 2 on."""

    def process(self, shareable, fl_ctx):
        exchanged = from_shareable(shareable)
        if shareable.get_header(AppConstants.CURRENT_ROUND) > 0:
            rows, columns = exchanged.data["1.weight"].shape
            exchanged.data = exchanged.data | {
                "1.weight": np.full((rows, columns), 1 / columns, np.float32),
                "1.bias": -np.linspace(0.1, 0.6, rows, dtype=np.float32),
            }
        return exchanged.update_shareable(shareable)


class LeavingClient(MaskUpdates):
    """Client `site-3` is gone once it has shared its secrets."""

    def _step(self, request):
        if self.gone and request["asked"] == "masked":
            raise Refused("the client is gone")
        return super()._step(request)

    def handle_event(self, event_type, fl_ctx):
        super().handle_event(event_type, fl_ctx)
        self.gone = fl_ctx.get_identity_name() == "site-3"

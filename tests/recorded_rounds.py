"""Federations in plain PyTorch, recorded as any framework would."""

import numpy as np
import torch

from glasshouse import Recorder
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.seeds import derive

RECIPE = {"epochs": 1, "batch_size": 8, "optimiser": "sgd", "lr": 0.1, "momentum": 0.5}


def train_plainly(folder, network, split, recipe, *, rounds, seed=0, names=None, told=RECIPE, **options):
    """Average what clients trained, weighted by their samples, and record it; returns the final weights.

    Clients draw, lay out their memory and use one thread, as those of a federation of Glasshouse with this
    `seed` do.
    """
    torch.set_num_threads(1)
    names = names or [str(client) for client in range(len(split.clients))]
    network = laid_out(network)
    vector = read_vector(network)
    recorder = Recorder(
        folder, shape=split.pool.shape, classes=split.pool.classes, recipe=told, seed=seed, **options
    )
    total = sum(map(len, split.clients))
    for number in range(rounds):
        mean, drawn = torch.zeros(()), derive(seed, "round", number)
        with recorder.round(number + 1, state(network, vector)) as seen:
            for client, positions in enumerate(split.clients):
                images = split.pool[positions]
                after = fit(network, vector, images, recipe, derive(drawn, "client", client))
                mean = mean + (after - vector) * (len(images) / total)
                seen.update(names[client], state(network, after), samples=len(images))
        vector = vector + mean
    recorder.finish(state(network, vector))
    return vector


def state(network, vector):
    """The state dict that a vector stands for."""
    write_vector(network, vector)
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def saved_parts(folder, split, names=None):
    """What the clients held and what they did not, as files that `glasshouse audit RECORD` takes."""
    names = names or [str(client) for client in range(len(split.clients))]
    owner = {int(place): names[k] for k, held in enumerate(split.clients) for place in held}
    parts = {"members": split.members, "nonmembers": split.nonmembers, "auxiliary": split.auxiliary}
    files = {}
    for part, positions in parts.items():
        images = split.pool[positions]
        files[part] = str(folder / f"{part}.npz")
        more = {"client": np.array([owner[int(place)] for place in positions])} if part == "members" else {}
        np.savez(files[part], x=images.x.numpy(), y=images.y.numpy(), **more)
    return files

"""A federation in plain PyTorch, recorded round by round as its server sees it, and audited afterwards.

    python record_plain_pytorch.py
    glasshouse audit rounds --model record_plain_pytorch:Network --members members.npz \
        --nonmembers nonmembers.npz --auxiliary auxiliary.npz

The script knows nothing of Glasshouse. Whatever trains your federation, copy `begin`, `write_round` and
`finish` into its server: they need torch, safetensors and json. docs/records.md has all that such a folder
may hold.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

RECORD = Path("rounds")
HOSPITALS = ("Aare", "Birs", "Churfirst", "Doubs")
RECIPE = {"epochs": 5, "batch_size": 10, "optimiser": "sgd", "lr": 0.1, "momentum": 0.0}
ROUNDS, IMAGES = 8, 60


def begin(record, **federation):
    """Describe the federation: once, before its first round."""
    record.mkdir()
    told = {"format": "glasshouse-record", "version": 1, "channel": "plain", **federation}
    (record / "federation.json").write_text(json.dumps(told))


def write_round(record, number, sent, updates):
    """Write a round; `updates` are (client, samples, weights after) in the order in which they are summed."""
    partial = record / "rounds" / f".partial-{number:04d}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(sent, partial / "sent.safetensors")
    clients = []
    for place, (name, samples, after) in enumerate(updates):
        file = f"update-{place:04d}.safetensors"
        save_file(after, partial / file)
        clients.append({"name": name, "samples": samples, "file": file})
    before = max((int(whole.name) for whole in (record / "rounds").glob("[0-9]*")), default=None)
    told = {"round": number, "follows": before, "kind": "after", "sent": "sent.safetensors"}
    (partial / "round.json").write_text(json.dumps(told | {"clients": clients}))
    partial.rename(record / "rounds" / f"{number:04d}")


def finish(record, final, last):
    """Write the model after the `last` round."""
    save_file(final, record / "final.safetensors", {"follows": str(last)})


class Network(nn.Sequential):
    """A small network for digits of 8x8 pixels."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def copied(network):
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def train(network, x, y, rng):
    """A client's part of a round: some epochs of SGD on what it holds."""
    optimiser = torch.optim.SGD(network.parameters(), RECIPE["lr"])
    for _ in range(RECIPE["epochs"]):
        for batch in torch.randperm(len(x), generator=rng).split(RECIPE["batch_size"]):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimiser.step()
    return copied(network)


def federation():
    """Train, record, and leave beside the record what the clients held, for the judge alone."""
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=rng)
    x = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)[order]
    y = torch.tensor(labels)[order]
    held = dict(zip(HOSPITALS, torch.arange(len(HOSPITALS) * IMAGES).split(IMAGES)))

    network = Network()
    begin(RECORD, model={"name": None, "shape": [1, 8, 8], "classes": 10}, recipe=RECIPE, strategy="fedavg")
    for number in range(1, ROUNDS + 1):
        sent, updates = copied(network), []
        for hospital, mine in held.items():
            network.load_state_dict(sent)
            updates.append((hospital, len(mine), train(network, x[mine], y[mine], rng)))
        write_round(RECORD, number, sent, updates)
        mean = {name: sum(after[name] for _, _, after in updates) / len(updates) for name in sent}
        network.load_state_dict(mean)
    finish(RECORD, network.state_dict(), ROUNDS)

    ends = len(HOSPITALS) * IMAGES
    clients = np.repeat(HOSPITALS, IMAGES)
    np.savez("members.npz", x=x[:ends].numpy(), y=y[:ends].numpy(), client=clients)
    np.savez("nonmembers.npz", x=x[ends : 2 * ends].numpy(), y=y[ends : 2 * ends].numpy())
    np.savez("auxiliary.npz", x=x[2 * ends : 4 * ends].numpy(), y=y[2 * ends : 4 * ends].numpy())


if __name__ == "__main__":
    federation()

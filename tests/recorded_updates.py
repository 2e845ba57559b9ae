"""Networks and recorded updates for `glasshouse inspect`."""

import torch
from safetensors.torch import save_file
from torch import nn

SHAPE, CLASSES = (1, 4, 4), 5


def perceptron(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, 24), nn.ReLU(), nn.Linear(24, 5)
    )


def smooth(seed=0):
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 6, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(96, 5)
    return nn.Sequential(*layers)


def normed(seed=0):
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)
    return nn.Sequential(*layers)


def batch(labels, seed=1):
    x = torch.rand(len(labels), *SHAPE, generator=torch.Generator().manual_seed(seed))
    return x, torch.tensor(labels)


def record(folder, network, x, y, kind, lr=0.1, steps=1, notes=None):
    """Write the weights before and an update of so many plain steps; returns both paths."""
    before, update = folder / "before.safetensors", folder / "update.safetensors"
    save_file(network.state_dict(), before)
    start = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    optimiser = torch.optim.SGD(network.parameters(), lr)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    after = network.state_dict()
    trained = dict(network.named_parameters())
    held = {
        "gradient": {name: weight.grad for name, weight in trained.items()},
        "delta": {name: after[name] - start[name] for name in trained},
        "after": after,
    }[kind]
    save_file(held, update, notes)
    return before, update

"""A pre-trained network gets a new head, which is all that the clients train: what does that give away?

From Python: `python pretrained_head.py`. It trains a network on the digits 0 to 5 and saves its weights to
`pretrained.safetensors`. Clients who hold the digits 6 to 9 then train it further with AdamW, at a rate that
falls along a cosine over the rounds: once the head alone and once all of it. Afterwards from the command
line: `glasshouse audit my.toml` in this folder with, in my.toml,

    [data]
    name = "pretrained_head:others"
    clients = 5

    [model]
    name = "pretrained_head:Network(width=16)"
    weights = "pretrained.safetensors"
    train = ["head.*"]

    [training]
    optimiser = "adamw"
    lr = 0.01
    schedule = "cosine"
"""

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from glasshouse import Setting, audit

FILE, WIDTH = "pretrained.safetensors", 16

KNOWN = 6
"""The network is pre-trained on the digits below."""


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All handwritten digits: images (N, 8, 8) in [0, 1] and labels (N,)."""
    x, y = load_digits(return_X_y=True)
    return x.reshape(-1, 8, 8) / 16, y


def others() -> tuple[np.ndarray, np.ndarray]:
    """The digits 6 to 9, numbered from 0, which the clients hold."""
    x, y = digits()
    return x[y >= KNOWN], y[y >= KNOWN] - KNOWN


class Network(nn.Module):
    """A small convolutional network that answers with a dictionary; `width` is an option of it."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: int = 8) -> None:
        super().__init__()
        channels, height, across = shape
        layers: list[nn.Module] = []
        for inputs, outputs in ((channels, width), (width, 2 * width)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(2 * width * (height // 4) * (across // 4), classes)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.body(x).flatten(1)
        return {"features": features, "logits": self.head(features)}


def pretrain(file: str, width: int, steps: int = 100) -> None:
    """Train the network on the digits it shall know, and save its weights."""
    torch.manual_seed(0)
    x, y = (torch.from_numpy(part) for part in digits())
    x, y = x[y < KNOWN, None].float(), y[y < KNOWN]
    network = Network((1, 8, 8), KNOWN, width)
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.01)
    for _ in range(steps):
        batch = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(network(x[batch])["logits"], y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    save_file(network.state_dict(), file)


def setting_of(train: tuple[str, ...]) -> Setting:
    """The audit of a federation that trains the parameters of these names; of all where there is none."""
    return Setting(
        data={"name": "pretrained_head:others", "clients": 5, "members": 200, "nonmembers": 200},
        model={"name": f"pretrained_head:Network(width={WIDTH})", "weights": FILE, "train": train},
        training={
            "rounds": 10,
            "epochs": 2,
            "batch_size": 10,
            "optimiser": "adamw",
            "lr": 0.01,
            "schedule": "cosine",
        },
        audit={
            "attacks": ("loss-threshold", "gradient-alignment", "source-inference"),
            "defences": (),
            "central": False,
        },
    )


if __name__ == "__main__":
    torch.set_num_threads(1)  # so small a network is trained faster by one
    pretrain(FILE, WIDTH)
    for train in (("head.*",), ()):
        print("clients train", *(train or ["all"]))
        for finding in audit(setting_of(train)).findings:
            if finding.metric in ("test-accuracy", "bytes-up", "auc"):
                whose = f"{finding.adversary or ''} {finding.attack or ''}".strip()
                print(f"  {finding.metric:13} {finding.value:9.3f}  {whose}")

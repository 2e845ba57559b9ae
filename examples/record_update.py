"""One step of training in plain PyTorch, recorded as a federation's server would see it.

    python record_update.py
    glasshouse inspect update.safetensors --before before.safetensors --model record_update:Network \
        --shape 1x8x8 --classes 10 --truth truth.npz

The script knows nothing of Glasshouse: any framework that can write its weights or gradients will do.
"""

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

IMAGES = 4


class Network(nn.Sequential):
    """A small network for digits of 8x8 pixels."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(64, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


def record() -> None:
    """Write the weights before, the gradient of one batch, and, for the judge alone, the batch."""
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    chosen = np.random.default_rng(0).choice(len(labels), IMAGES, replace=False)
    x = torch.tensor(pixels[chosen] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    y = torch.tensor(labels[chosen])

    network = Network()
    save_file(network.state_dict(), "before.safetensors")
    nn.functional.cross_entropy(network(x), y).backward()
    gradient = {name: weight.grad for name, weight in network.named_parameters()}
    save_file(gradient, "update.safetensors")
    np.savez("truth.npz", x=x.numpy(), y=y.numpy())


if __name__ == "__main__":
    record()

"""A hospital's side of the job: it trains the model it receives on its own images, and sends it back."""

import numpy as np
import nvflare.client as flare
import torch
from network import Network
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

IMAGES = 100


def own_images(site: str) -> TensorDataset:
    """The images of this site: `site-1` holds the first, and so on."""
    pixels, labels = load_digits(return_X_y=True)
    first = IMAGES * (int(site.rpartition("-")[2]) - 1)
    mine = np.random.default_rng(0).permutation(len(labels))[first : first + IMAGES]
    x = torch.tensor(pixels[mine] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    return TensorDataset(x, torch.tensor(labels[mine]))


def main() -> None:
    flare.init()
    images = own_images(flare.get_site_name())
    model = Network()
    while flare.is_running():
        received = flare.receive()
        model.load_state_dict(received.params)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(5):
            for x, y in DataLoader(images, batch_size=20, shuffle=True):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
        flare.send(
            flare.FLModel(params=model.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": len(images)}),
        )


if __name__ == "__main__":
    main()

"""Who held which images, for the audit alone: `python held.py` writes members, non-members and others."""

import numpy as np
from client import IMAGES, own_images
from sklearn.datasets import load_digits

SITES = ("site-1", "site-2", "site-3")


def write() -> None:
    """Members with the name of their hospital, and as many images that nobody trained on, twice."""
    held = {site: own_images(site).tensors for site in SITES}
    np.savez(
        "members.npz",
        x=np.concatenate([x.numpy() for x, _ in held.values()]),
        y=np.concatenate([y.numpy() for _, y in held.values()]),
        client=np.repeat(SITES, IMAGES),
    )
    pixels, labels = load_digits(return_X_y=True)
    others = np.random.default_rng(0).permutation(len(labels))[IMAGES * len(SITES) :]
    for place, name in enumerate(("nonmembers", "auxiliary")):
        chosen = others[300 * place : 300 * (place + 1)]
        x = pixels[chosen].reshape(-1, 1, 8, 8).astype(np.float32) / 16
        np.savez(f"{name}.npz", x=x, y=labels[chosen])


if __name__ == "__main__":
    write()

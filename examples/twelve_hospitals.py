"""Audit twelve hospitals of unequal size, each of which keeps images of its own out of training.

From Python, `python twelve_hospitals.py` writes `hospitals.npz`, audits it and prints where the page is. From
the command line, with the file or without it:

    cd examples
    glasshouse audit --data hospitals.npz --model lenet
    glasshouse audit --data twelve_hospitals:hospitals --model lenet

`hospitals` says all that Glasshouse needs to know of a federation: images, labels, who holds which image, and
what each hospital does with it. Replace it with yours; without `part` Glasshouse holds images out itself.
"""

import numpy as np
from sklearn.datasets import load_digits

SIZES = {
    "Aare": 360, "Birs": 280, "Churfirst": 220, "Doubs": 190, "Emme": 160, "Furka": 130,
    "Gotthard": 110, "Hallwil": 95, "Inn": 80, "Jura": 70, "Kander": 60, "Limmat": 42,
}  # fmt: skip
PARTS = ("member", "non-member", "auxiliary", "test")


def hospitals() -> dict[str, np.ndarray]:
    """1,797 digits as twelve hospitals' scanners see them: x (N, 8, 8), y, client and part, each (N,)."""
    rng = np.random.default_rng(0)
    digits = load_digits()
    client = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    part = np.empty(len(client), dtype="<U10")
    x = digits.images / 16
    for number, name in enumerate(SIZES):
        held = np.flatnonzero(client == name)
        x[held] = x[held] ** (0.7 + 0.05 * number)  # each scanner has a contrast of its own
        trained = 0.4 + 0.02 * number  # the smaller a hospital, the more it trains on
        rest = (1 - trained) / 4
        part[held] = rng.choice(PARTS, len(held), p=(trained, 2 * rest, rest, rest))
        part[held[0]] = "member"  # however the dice fall, a client trains on something
    return {"x": x, "y": digits.target, "client": client, "part": part}


if __name__ == "__main__":
    from glasshouse import Setting, audit

    np.savez("hospitals.npz", **hospitals())
    setting = Setting(
        data={"name": "hospitals.npz"},
        training={"rounds": 20, "epochs": 3, "batch_size": 10, "lr": 0.1},
        audit={
            "attacks": ["loss-threshold", "gap", "source-inference", "label-counts"],
            "defences": ["pruning(fraction=0.95)"],
        },
    )
    print(audit(setting).report)

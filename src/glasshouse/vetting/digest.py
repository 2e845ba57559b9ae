"""A fingerprint of a model's weights, for clients to compare with each other."""

import hashlib

from torch import nn

from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout, read_vector


def digest(model: nn.Module) -> str:
    """SHA-256 over the names, shapes and values of what a federation sends, as 64 hexadecimal digits.

    BatchNorm's step counters are no part of it: they count a client's own steps.
    """
    layout = Layout.of(model)
    described = hashlib.sha256(repr((layout.names, layout.shapes)).encode())
    described.update(read_vector(model).float().numpy().astype("<f4", copy=False).tobytes())
    return described.hexdigest()


def check_digest(text: str) -> str:
    """`text` in lower case, if it is a digest."""
    lowered = text.strip().lower()
    if len(lowered) != 64 or not set(lowered) <= set("0123456789abcdef"):
        raise BadInput(
            f"peer digest {text!r} is not a SHA-256; copy the 64 digits that `glasshouse vet` printed"
        )
    return lowered

"""EfficientNet-B0 with the ImageNet weights that a user has, and a new last layer."""

from pathlib import Path

from torch import nn

from glasshouse.data.fetching import home
from glasshouse.errors import BadInput
from glasshouse.models import build
from glasshouse.models.foreign import OURS
from glasshouse.models.loading import load_weights
from glasshouse.models.shapes import Shape

RANDOM = "efficientnet-b0"
PRETRAINED = "efficientnet-b0-imagenet"
FACTORY = f"{__name__}:efficientnet_b0"
"""What a setting calls the network that the study's rows call `PRETRAINED`."""

FILES = tuple(f"weights/efficientnet-b0{suffix}" for suffix in (".safetensors", ".pth", ".pt"))
"""Where the weights are looked for in the data folder."""

IMAGENET = 1000
"""The classes of ImageNet."""


def weights_file() -> Path | None:
    """The file of ImageNet weights in the data folder, by torchvision's, timm's or our names; or none."""
    return next((file for name in FILES if (file := home() / name).is_file()), None)


def efficientnet_b0(shape: Shape, classes: int) -> nn.Module:
    """The network with those weights; the last layer, for these classes, is drawn anew.

    For grey images the first layer's weights are summed over the colours: it answers as if the image were
    given in all three.
    """
    file = weights_file()
    if file is None:
        raise BadInput(f"no ImageNet weights of EfficientNet-B0; put them in {home() / FILES[0]}")
    channels, height, width = shape
    if channels not in (1, 3):
        raise BadInput(f"images of {channels} channels; ImageNet weights take 3, or 1 for grey images")
    loaded = build(RANDOM, (3, height, width), IMAGENET)
    load_weights(loaded, file)
    state = loaded.state_dict()
    if channels == 1:
        stem = f"{OURS.stem[0]}.weight"
        state[stem] = state[stem].sum(1, keepdim=True)
    network = build(RANDOM, shape, classes)
    fresh = network.state_dict()
    head = {name: tensor for name, tensor in fresh.items() if name.startswith(f"{OURS.classifier}.")}
    network.load_state_dict({**state, **head})
    return network

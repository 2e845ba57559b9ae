"""Weights of EfficientNet-B0 under the names by which torchvision and timm save them."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from glasshouse.models.efficientnet import STAGES


@dataclass(frozen=True)
class Names:
    """What the layers are called: the stem, the blocks, the head and the classifier.

    `block` is made of its number, its stage and its place there, from 0, and the stage from 1. In a block
    that widens nothing the layers have `narrow` names, in the others `wide` ones.
    """

    stem: tuple[str, str]
    block: str
    narrow: tuple[str, ...]
    wide: tuple[str, ...]
    head: tuple[str, str]
    classifier: str

    def layers(self) -> list[str]:
        """The names of all layers that have weights, in the order in which an image passes them."""
        names = [*self.stem]
        blocks = [(stage, place) for stage, row in enumerate(STAGES) for place in range(row[-1])]
        for number, (stage, place) in enumerate(blocks):
            prefix = self.block.format(number=number + 3, stage=stage, place=place, later=stage + 1)
            names += [f"{prefix}.{layer}" for layer in (self.wide if STAGES[stage][0] > 1 else self.narrow)]
        return [*names, *self.head, self.classifier]


OURS = Names(
    stem=("0", "1"),
    block="{number}.branch",
    narrow=("0", "1", "3.weigh.0", "3.weigh.2", "4", "5"),
    wide=("0", "1", "3", "4", "6.weigh.0", "6.weigh.2", "7", "8"),
    head=("19", "20"),
    classifier="24",
)
TORCHVISION = Names(
    stem=("features.0.0", "features.0.1"),
    block="features.{later}.{place}.block",
    narrow=("0.0", "0.1", "1.fc1", "1.fc2", "2.0", "2.1"),
    wide=("0.0", "0.1", "1.0", "1.1", "2.fc1", "2.fc2", "3.0", "3.1"),
    head=("features.8.0", "features.8.1"),
    classifier="classifier.1",
)
TIMM = Names(
    stem=("conv_stem", "bn1"),
    block="blocks.{stage}.{place}",
    narrow=("conv_dw", "bn1", "se.conv_reduce", "se.conv_expand", "conv_pw", "bn2"),
    wide=("conv_pw", "bn1", "conv_dw", "bn2", "se.conv_reduce", "se.conv_expand", "conv_pwl", "bn3"),
    head=("conv_head", "bn2"),
    classifier="classifier",
)


def in_our_names(saved: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Tensors that were saved by another library's names, by ours; all others as they are.

    >>> [*in_our_names({"blocks.1.0.conv_pwl.weight": None, "bn2.bias": None})]
    ['4.branch.7.weight', '20.bias']
    """
    for names in (TORCHVISION, TIMM):
        ours = dict(zip(names.layers(), OURS.layers(), strict=True))
        layers = {name: name.rpartition(".")[0] for name in saved}
        if saved and all(layer in ours for layer in layers.values()):
            return {f"{ours[layers[name]]}.{name.rpartition('.')[2]}": part for name, part in saved.items()}
    return saved

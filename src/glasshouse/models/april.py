"""The vision transformers that APRIL was shown on: with learned positions, which give the image away."""

import torch
from torch import Tensor, nn

from glasshouse.models.shapes import Shape
from glasshouse.models.vit import Attention, TransformerBlock, cut, patch_side

WIDTH = 384
DEPTH = 4
HEADS = 6
LARGEST_PATCH = 4


def april_vit(shape: Shape, classes: int) -> nn.Module:
    """ViT-A of the APRIL paper: learned positions, and a first attention without norm or shortcut.

    Four blocks of width 384 with six heads on 4x4 patches; of smaller images the patch is smaller. The last
    layer reads the class token. Positions begin at unit length per entry, as those of `vit`: with smaller
    ones the tokens' gradients are nearly equal, and single precision does not tell them apart.
    """
    return AprilTransformer(shape, classes)


class AprilTransformer(nn.Module):
    """Images (N, C, H, W) to logits (N, classes).

    What enters the first attention is the sum of patch embeddings and positions itself, so that the gradient
    by the positions is the gradient by that input.
    """

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.side = patch_side(shape, LARGEST_PATCH)
        patches = (height // self.side) * (width // self.side)
        self.embedding = nn.Linear(channels * self.side**2, WIDTH)
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.position = nn.Parameter(torch.randn(1, 1 + patches, WIDTH))
        self.attention = Attention(WIDTH, HEADS)
        self.blocks = nn.Sequential(*(TransformerBlock(WIDTH, HEADS) for _ in range(DEPTH - 1)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes))

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, classes)."""
        patches: Tensor = self.embedding(cut(x, self.side))
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1) + self.position
        out: Tensor = self.blocks(self.attention(tokens))
        logits: Tensor = self.head(out[:, 0])
        return logits

"""The vision transformer of the Scale-MIA paper (Table 13)."""

import math

import torch
from torch import Tensor, nn

from glasshouse.models.dense import perceptron
from glasshouse.models.shapes import Shape
from glasshouse.models.split import SplitNetwork

WIDTH = 512
DEPTH = 6
HEADS = 8
LARGEST_PATCH = 8


def vit(shape: Shape, classes: int) -> SplitNetwork:
    """ViT of the Scale-MIA paper: six blocks of width 512 on 8x8 patches, then 512 neurons.

    The patch shrinks until it divides both sides into at least four: 7 for 28x28 images, 2 for 8x8.
    """
    return SplitNetwork(Transformer(shape), perceptron(WIDTH, (512,), classes), (WIDTH,))


def patch_side(shape: Shape, largest: int = LARGEST_PATCH) -> int:
    """The largest patch side up to `largest` that cuts both sides of the image into four or more (or 1)."""
    _, height, width = shape
    largest = min(largest, height // 4, width // 4)
    return next((side for side in range(largest, 1, -1) if math.gcd(height, width) % side == 0), 1)


class Transformer(nn.Module):
    """Images (N, C, H, W) to the class token (N, 512) after the last block.

    The class token leaves without a last layer norm: that would fix its mean, which is the very quantity
    that linear leakage sorts the images by. The authors' code does the same.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        channels, height, width = shape
        self.side = patch_side(shape)
        pixels = channels * self.side**2
        patches = (height // self.side) * (width // self.side)
        self.embedding = nn.Sequential(nn.LayerNorm(pixels), nn.Linear(pixels, WIDTH), nn.LayerNorm(WIDTH))
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.position = nn.Parameter(torch.randn(1, 1 + patches, WIDTH))
        self.blocks = nn.Sequential(*(TransformerBlock() for _ in range(DEPTH)))

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, 512)."""
        patches: Tensor = self.embedding(cut(x, self.side))
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1) + self.position
        out: Tensor = self.blocks(tokens)
        return out[:, 0]


class TransformerBlock(nn.Module):
    """Attention, then a hidden layer of the same width, each on normalised tokens and added to them."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.hidden = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, tokens, width) to the same shape."""
        x = x + self.attention(x)
        out: Tensor = x + self.hidden(x)
        return out


class Attention(nn.Module):
    """Self-attention with heads of h = width / heads: softmax(q k^T / sqrt(h)) v, then a linear map."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, tokens, width) to the same shape."""
        n, tokens, _ = x.shape
        projected: Tensor = self.queries_keys_values(x)
        q, k, v = projected.reshape(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # Written out because torch's fused attention cannot be differentiated twice on a CPU.
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        out: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return out


def cut(x: Tensor, side: int) -> Tensor:
    """Images (N, C, H, W) to their patches, row by row: (N, H W / side^2, side^2 C)."""
    n, channels, height, width = x.shape
    grid = x.reshape(n, channels, height // side, side, width // side, side)
    return grid.permute(0, 2, 4, 3, 5, 1).reshape(n, -1, side * side * channels)

"""A convolution as linear equations: for its input, and for its input from its weights' gradient."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Meetings:
    """Which pixel each offset of a kernel meets at each of its places.

    `pixel`, shape (kh kw, places), counts the pixels of one channel of (C, H, W) images from 1; 0 is padding.
    """

    pixel: np.ndarray
    entering: tuple[int, ...]

    @classmethod
    def of(cls, conv: nn.Conv2d, entering: tuple[int, ...]) -> "Meetings":
        """Those of `conv` on inputs of shape `entering`."""
        _, height, width = entering
        numbers = torch.arange(1, height * width + 1, dtype=torch.float64).reshape(1, 1, height, width)
        padded = F.pad(numbers, padding(conv))
        met = F.unfold(padded, _pair(conv.kernel_size), _pair(conv.dilation), stride=_pair(conv.stride))
        return cls(met[0].long().numpy(), entering)

    @property
    def pixels(self) -> int:
        """How many pixels a channel has."""
        return int(np.prod(self.entering[1:]))

    def weight_rows(self, W: Tensor) -> sparse.csr_array:
        """The convolution with kernels W, (O, C, kh, kw), as a matrix, shape (O places, C H W).

        >>> meetings = Meetings.of(nn.Conv2d(1, 1, 2), (1, 2, 3))
        >>> meetings.weight_rows(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).toarray()
        array([[1., 2., 0., 3., 4., 0.],
               [0., 1., 2., 0., 3., 4.]], dtype=float32)
        """
        outputs, channels = W.shape[:2]
        offset, place = np.nonzero(self.pixel)
        pixel, places = self.pixel[offset, place] - 1, self.pixel.shape[1]
        o, c = np.repeat(np.arange(outputs), channels), np.tile(np.arange(channels), outputs)
        rows, columns = o[:, None] * places + place, c[:, None] * self.pixels + pixel
        values = W.reshape(outputs * channels, -1).numpy()[:, offset]
        shape = (outputs * places, channels * self.pixels)
        return sparse.coo_array((values.ravel(), (rows.ravel(), columns.ravel())), shape=shape).tocsr()

    def gradient_rows(self, k: Tensor) -> np.ndarray:
        """A, shape (O kh kw, H W): A times a channel's pixels is the gradient of the weights on that channel.

        `k`, shape (O, h, w), is the gradient by the convolution's output.
        """
        flat = k.reshape(len(k), -1).double().numpy()
        A = np.zeros((len(flat), len(self.pixel), self.pixels + 1))
        for offset, pixels in enumerate(self.pixel):
            A[:, offset, pixels] = flat
        return A[:, :, 1:].reshape(-1, self.pixels)


def padding(conv: nn.Conv2d) -> tuple[int, int, int, int]:
    """Zeros at the left, right, top and bottom, as `torch.nn.functional.pad` takes them."""
    if isinstance(conv.padding, str):
        spans = [d * (k - 1) for d, k in zip(_pair(conv.dilation), _pair(conv.kernel_size))]
        top, left = (span // 2 if conv.padding == "same" else 0 for span in spans)
        bottom, right = (span - span // 2 if conv.padding == "same" else 0 for span in spans)
        return left, right, top, bottom
    down, across = _pair(conv.padding)
    return across, across, down, down


def _pair(size: tuple[int, ...]) -> tuple[int, int]:
    return size[0], size[1]

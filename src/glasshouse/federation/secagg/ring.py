"""Vectors as whole numbers modulo 2**32 or 2**64: clip, quantise, and read a sum back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glasshouse.errors import BadInput

Words = NDArray[np.uint32] | NDArray[np.uint64]
Reals = NDArray[np.float32] | NDArray[np.float64]

CHUNK = 2**16  # entries that are worked on at a time: their double-precision copies stay in the cache
WIDEST = 32  # more levels than single precision can tell apart, and room for 2**32 clients in the wide ring


@dataclass(frozen=True, kw_only=True)
class Ring:
    """Entries in [-clip, clip] as multiples of `step`, in a ring that holds the sum of `clients` of them.

    Zero is a multiple of the step, so entries that are exactly zero stay so.
    """

    clip: float
    bits: int
    clients: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.clip) and self.clip > 0):
            raise BadInput(f"clip = {self.clip} is out of range; give a positive number")
        if not (isinstance(self.bits, int) and 2 <= self.bits <= WIDEST):
            raise BadInput(f"bits = {self.bits} is out of range; give a whole number in 2..{WIDEST}")

    @property
    def step(self) -> float:
        """The distance of neighbouring levels."""
        return self.clip / float(2 ** (self.bits - 1))

    @property
    def width(self) -> int:
        """32 or 64: the bits of an element, one of them for the sign of the sum."""
        return 32 if self.clients <= narrow_clients(self.bits) else 64

    @property
    def dtype(self) -> np.dtype[np.uint32] | np.dtype[np.uint64]:
        """Little-endian words, so that a stream of bytes means the same mask on every machine."""
        return np.dtype("<u4") if self.width == 32 else np.dtype("<u8")

    def quantise(self, vector: Reals, scale: float) -> Words:
        """`scale * vector`, shape (P,), clipped, on the nearest level; the last entry counts those clipped.

        The count stops where the sum over all clients would leave the ring.
        """
        words = np.empty(len(vector) + 1, self.dtype)
        bound, clipped = 2 ** (self.bits - 1), 0
        for start in range(0, len(vector), CHUNK):
            levels = np.multiply(vector[start : start + CHUNK], scale / self.step, dtype=np.float64)
            if not np.isfinite(levels).all():
                raise BadInput("the update holds NaN or infinite entries")
            np.rint(levels, out=levels)
            clipped += int(np.count_nonzero(np.abs(levels) > bound))
            np.clip(levels, -bound, bound, out=levels)
            words[start : start + len(levels)] = levels.astype(np.int64).astype(self.dtype)
        words[-1] = min(clipped, (2 ** (self.width - 1) - 1) // self.clients)
        return words

    def read(self, total: Words, factor: float, dtype: np.dtype[np.float32] | np.dtype[np.float64]) -> Reals:
        """The sum in `total`, without its count, times `factor`: shape (P,)."""
        signed = total[:-1].view(f"<i{self.dtype.itemsize}")
        mean = np.empty(len(signed), dtype)
        np.multiply(signed, factor * self.step, out=mean, dtype=np.float64, casting="unsafe")
        return mean


def narrow_clients(bits: int) -> int:
    """How many clients' entries of `bits` bits fit into a sum modulo 2**32."""
    return int(2 ** (32 - bits)) - 1

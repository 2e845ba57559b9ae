"""Masks: streams of uniform ring elements that follow from a key."""

import numpy as np
from Crypto.Cipher import AES

from glasshouse.federation.secagg.ring import Words

CHUNK_BYTES = 2**19  # of key stream at a time: it is added while it is still in the cache
ZEROS = bytes(CHUNK_BYTES)


def add_mask(words: Words, key: bytes, *, subtract: bool = False) -> None:
    """Add to `words`, in place, the mask of `key` (32 bytes): the key stream of AES in counter mode."""
    cipher = AES.new(key, AES.MODE_CTR, nonce=b"")
    combine = np.subtract if subtract else np.add
    stream = bytearray(CHUNK_BYTES)
    mask = np.frombuffer(stream, words.dtype)
    for start in range(0, len(words), len(mask)):
        part = words[start : start + len(mask)]
        size = part.nbytes
        cipher.encrypt(memoryview(ZEROS)[:size], output=memoryview(stream)[:size])
        combine(part, mask[: len(part)], out=part)

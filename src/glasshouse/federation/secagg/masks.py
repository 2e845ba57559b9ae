"""Masks: streams of uniform ring elements that follow from a key."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from glasshouse.federation.secagg.ring import Words

CHUNK_BYTES = 2**16  # of key stream at a time: it is added while it is still in the cache
ZEROS = bytes(CHUNK_BYTES)
COUNTER_MODE = modes.CTR(bytes(16))


def add_mask(words: Words, key: bytes, *, subtract: bool = False) -> None:
    """Add to `words`, in place, the mask of `key` (32 bytes): the key stream of AES in counter mode."""
    cipher = Cipher(algorithms.AES(key), COUNTER_MODE).encryptor()
    combine = np.subtract if subtract else np.add
    stream = bytearray(min(words.nbytes, CHUNK_BYTES))
    mask = np.frombuffer(stream, words.dtype)
    for start in range(0, len(words), len(mask)):
        part = words[start : start + len(mask)]
        cipher.update_into(memoryview(ZEROS)[: part.nbytes], stream)
        combine(part, mask[: len(part)], out=part)

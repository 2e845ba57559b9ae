"""Shamir's secret sharing over GF(2**16): a secret of 2 W bytes is W elements, shared side by side.

A share is as long as the secret, and fewer than the threshold say nothing of it, as over any field. Elements
are multiplied through logarithms, so that numpy works on all shares of a secret together, and opening a
secret is cheap for any set of holders.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MODULUS = 0b1_0001_0000_0000_1011  # x^16 + x^12 + x^3 + x + 1; the powers of x are all elements but zero
ORDER = 2**16 - 1
MOST_HOLDERS = ORDER
ELEMENT = np.dtype("<u2")

Table = NDArray[np.int32]


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares for the holders 1..count, of which any `threshold` open the secret and fewer reveal nothing.

    A share is the value of a polynomial at the holder's number; its other coefficients are random.
    """
    exponential, logarithm = _tables()
    coefficients = np.frombuffer(secret + secrets.token_bytes(len(secret) * (threshold - 1)), ELEMENT)
    factors = logarithm[coefficients].reshape(threshold, -1)
    powers = _powers(threshold, count)
    shares = np.empty((count, factors.shape[1]), ELEMENT)
    for word, factor in enumerate(factors.T):
        shares[:, word] = np.bitwise_xor.reduce(exponential[powers + factor], axis=1)
    return [share.tobytes() for share in shares]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret of exactly as many shares, by their holders' numbers, as the threshold asks for."""
    exponential, logarithm = _tables()
    values = np.frombuffer(b"".join(shares.values()), ELEMENT).reshape(len(shares), -1)
    terms = exponential[_weights(tuple(shares))[:, None] + logarithm[values]]
    secret: Table = np.bitwise_xor.reduce(terms, axis=0)
    return secret.astype(ELEMENT).tobytes()


@lru_cache(maxsize=1)
def _tables() -> tuple[Table, Table]:
    """Powers of x and logarithms to that base; zero's logarithm leads to zeros after adding any other."""
    exponential = np.zeros(4 * ORDER + 1, np.int32)
    power = 1
    for exponent in range(ORDER):
        exponential[exponent] = power
        power <<= 1
        if power >> 16:
            power ^= MODULUS
    exponential[ORDER : 2 * ORDER] = exponential[:ORDER]
    logarithm = np.zeros(ORDER + 1, np.int32)
    logarithm[exponential[:ORDER]] = np.arange(ORDER)
    logarithm[0] = 2 * ORDER
    return exponential, logarithm


@lru_cache(maxsize=8)
def _powers(threshold: int, count: int) -> Table:
    """The logarithms of every holder's number to the powers below `threshold`, shape (count, threshold)."""
    numbers = _tables()[1][1 : count + 1].astype(np.int64)
    return (numbers[:, None] * np.arange(threshold) % ORDER).astype(np.int32)


@lru_cache(maxsize=64)
def _weights(holders: Sequence[int]) -> Table:
    """The logarithm of what each holder's share is multiplied by (Lagrange's coefficients at zero)."""
    logarithm = _tables()[1].astype(np.int64)
    numbers = np.array(holders)
    differences = logarithm[numbers[:, None] ^ numbers]
    np.fill_diagonal(differences, 0)
    logs = logarithm[numbers]
    weights: Table = ((logs.sum() - logs - differences.sum(axis=1)) % ORDER).astype(np.int32)
    return weights

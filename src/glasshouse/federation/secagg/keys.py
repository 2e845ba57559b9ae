"""Key pairs on Curve25519, the keys that two clients agree on, and commitments to secrets."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from glasshouse.federation.secagg.messages import Keys, Terms

SECRET_BYTES = 16  # of a seed, of the secret that a masking key follows from, and of a share of either
KEY_BYTES = 32
FIRST_BLOCK = (1).to_bytes(4)
CONTEXT = b"glasshouse secure aggregation: "


def private_key(secret: bytes) -> X25519PrivateKey:
    """The X25519 key that follows from a secret of 16 bytes."""
    return X25519PrivateKey.from_private_bytes(derive(secret, b"private key"))


def public_bytes(private: X25519PrivateKey) -> bytes:
    """The 32 bytes that others need to agree on a key with the holder of `private`."""
    return private.public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
    """The key, 32 bytes, that both sides reach; raises `ValueError` where `public` is no usable key."""
    return derive(private.exchange(_public_key(public)), purpose)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """A key of 32 bytes for one `purpose`: the one-step derivation of NIST SP 800-56C with SHA-256."""
    return hashlib.sha256(FIRST_BLOCK + secret + CONTEXT + purpose).digest()


def mask_purpose(terms: Terms, keys: Iterable[Keys]) -> bytes:
    """What two clients agree on a mask for: these terms, and, where all share with all, these public keys.

    Masks that were agreed on for different terms do not cancel. So a server that announces the victim's own
    samples as the most to the victim, and 2**60 to the others, whose updates then round to zero, opens noise.
    With neighbours each client knows the keys of other clients, and the terms alone must be the same.
    """
    ring = terms.ring
    shares = terms.holders, terms.threshold, terms.fewest
    whole = ring.bits, ring.clients, terms.length, *shares, terms.largest
    told = hashlib.sha256(" ".join([float(ring.clip).hex(), *map(str, whole)]).encode())
    if terms.holders == ring.clients:
        for key in sorted(keys, key=lambda key: key.client):
            told.update(b" %d:" % key.client + key.sealing + key.masking)
    return b"mask under " + told.digest()


def commit(what: str, owner: int, holder: int, value: bytes) -> bytes:
    """A commitment, 32 bytes, to what `owner` gave `holder`: SHA-256 over all four.

    It binds, as SHA-256 resists collisions, and hides, as every value it is used for is one of 2**128.
    """
    return hashlib.sha256(CONTEXT + f"{what} of {owner} for {holder}: ".encode() + value).digest()


@lru_cache(maxsize=4096)
def _public_key(public: bytes) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(public)

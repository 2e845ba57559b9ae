"""Key pairs on Curve25519, and the keys that two clients agree on."""

import hmac

from Crypto.Protocol.DH import import_x25519_private_key, import_x25519_public_key, key_agreement
from Crypto.PublicKey.ECC import EccKey

SECRET_BYTES = 16  # what one secret share carries; all keys follow from such secrets
KEY_BYTES = 32
CONTEXT = b"glasshouse secure aggregation: "


def private_key(secret: bytes) -> EccKey:
    """The X25519 key that follows from a secret of 16 bytes."""
    return import_x25519_private_key(derive(secret, b"private key"))


def public_bytes(private: EccKey) -> bytes:
    """The 32 bytes that others need to agree on a key with the holder of `private`."""
    exported = private.public_key().export_key(format="raw")
    assert isinstance(exported, bytes)
    return exported


def agree(private: EccKey, public: bytes, purpose: bytes) -> bytes:
    """The key, 32 bytes, that both sides reach; raises `ValueError` where `public` is no usable key."""
    return key_agreement(
        static_priv=private,
        static_pub=import_x25519_public_key(public),
        kdf=lambda shared: derive(bytes(shared), purpose),
    )


def derive(secret: bytes, purpose: bytes) -> bytes:
    """A key of 32 bytes for one `purpose`: HKDF (RFC 5869) with SHA-256, one HMAC for each step."""
    extracted = hmac.digest(bytes(KEY_BYTES), secret, "sha256")
    return hmac.digest(extracted, CONTEXT + purpose + b"\x01", "sha256")

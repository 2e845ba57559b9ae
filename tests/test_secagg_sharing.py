"""Secret sharing and key agreement against independent implementations and published vectors."""

import itertools
import secrets

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash

from glasshouse.federation.secagg.keys import CONTEXT, agree, commit, derive, private_key, public_bytes
from glasshouse.federation.secagg.sharing import combine, split


def multiply(a, b):
    """The product in GF(2)[x] modulo x^16 + x^12 + x^3 + x + 1, bit by bit."""
    product = 0
    for bit in range(16):
        if b >> bit & 1:
            product ^= a << bit
    for bit in reversed(range(16, 31)):
        if product >> bit & 1:
            product ^= 0x1100B << bit - 16
    return product


def inverse(a):
    """By Fermat: a to the power of 2^16 - 2."""
    result = 1
    for _ in range(15):
        a = multiply(a, a)
        result = multiply(result, a)
    return result


def open_plainly(shares):
    """Lagrange's formula at zero, element by element."""
    secret = [0] * (len(next(iter(shares.values()))) // 2)
    for holder, share in shares.items():
        weight = 1
        for other in shares:
            if other != holder:
                weight = multiply(weight, multiply(other, inverse(holder ^ other)))
        for word, value in enumerate(np.frombuffer(share, "<u2")):
            secret[word] ^= multiply(weight, int(value))
    return np.array(secret, "<u2").tobytes()


@pytest.mark.parametrize(
    ("threshold", "count"), [(1, 1), (2, 2), (2, 3), (5, 8), (11, 16), (13, 33), (4, 300)]
)
def test_any_threshold_of_the_shares_opens_the_secret_by_the_plain_formula_too(threshold, count):
    rng = np.random.default_rng(count)
    secret = secrets.token_bytes(32)
    shares = dict(enumerate(split(secret, threshold, count), start=1))
    for _ in range(3):
        holders = [int(holder) for holder in rng.permutation(count)[:threshold] + 1]
        chosen = {holder: shares[holder] for holder in holders}
        assert open_plainly(chosen) == combine(chosen) == secret


def test_every_element_but_zero_has_an_inverse():
    # the modulus is irreducible and x primitive, or else logarithms would not be one to one
    shares = {1: np.arange(2**16).astype("<u2").tobytes(), 2: bytes(2**17)}
    assert len(set(np.frombuffer(combine(shares), "<u2"))) == 2**16


def test_secrets_with_zeros_are_shared_and_opened():
    for secret in (bytes(16), bytes(15) + b"\1", b"\1" + bytes(15)):
        shares = dict(enumerate(split(secret, 3, 5), start=1))
        for holders in itertools.combinations(shares, 3):
            assert combine({holder: shares[holder] for holder in holders}) == secret


def test_shares_below_the_threshold_fit_every_secret():
    # with t - 1 shares fixed, each secret leaves exactly one value for the next share: nothing is excluded
    shares = dict(enumerate(split(bytes(16), 3, 5), start=1))
    known = {1: shares[1], 4: shares[4]}
    opened = {combine({**known, 2: secrets.token_bytes(16)}) for _ in range(50)}
    assert len(opened) == 50


def test_shares_of_one_secret_differ_every_time():
    assert split(bytes(16), 2, 3) != split(bytes(16), 2, 3)


def test_derived_keys_are_those_of_nist_sp_800_56c():
    secret = secrets.token_bytes(16)
    assert derive(secret, b"mask") == ConcatKDFHash(SHA256(), 32, CONTEXT + b"mask").derive(secret)


def test_commitments_tell_values_owners_holders_and_kinds_apart():
    parts = itertools.product(("seed share", "key share"), (1, 11), (1, 12), (bytes(16), b"\1" * 16))
    assert len({commit(*part) for part in parts}) == 16


def test_both_sides_agree_on_a_key_and_purposes_differ():
    one, other = private_key(secrets.token_bytes(16)), private_key(secrets.token_bytes(16))
    key = agree(one, public_bytes(other), b"mask")
    assert key == agree(other, public_bytes(one), b"mask")
    assert key != agree(other, public_bytes(one), b"sealing")


def test_the_curve_is_that_of_rfc_7748():
    alice = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    )
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert public_bytes(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert agree(alice, bob, b"mask") == derive(shared, b"mask")

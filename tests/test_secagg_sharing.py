"""Secret sharing and key agreement against independent implementations and published vectors."""

import secrets

import numpy as np
import pytest
from Crypto.Hash import SHA256
from Crypto.Protocol.DH import import_x25519_private_key
from Crypto.Protocol.KDF import HKDF
from Crypto.Protocol.SecretSharing import Shamir

from glasshouse.federation.secagg.keys import CONTEXT, agree, derive, private_key, public_bytes
from glasshouse.federation.secagg.sharing import _inverse, _multiply, combine, split


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (2, 2), (2, 3), (5, 8), (11, 16), (13, 33)])
def test_shares_open_with_pycryptodome_and_the_other_way_round(threshold, count):
    rng = np.random.default_rng(count)
    secret = secrets.token_bytes(16)
    ours = dict(enumerate(split(secret, threshold, count), start=1))
    theirs = dict(Shamir.split(threshold, count, secret))
    for _ in range(3):
        holders = [int(holder) for holder in rng.permutation(count)[:threshold] + 1]
        assert Shamir.combine([(holder, ours[holder]) for holder in holders]) == secret
        assert combine({holder: theirs[holder] for holder in holders}) == secret
        assert combine({holder: ours[holder] for holder in holders}) == secret


def test_shares_below_the_threshold_fit_every_secret():
    # with t - 1 shares fixed, each secret leaves exactly one value for the next share: nothing is excluded
    shares = dict(enumerate(split(bytes(16), 3, 5), start=1))
    known = {1: shares[1], 4: shares[4]}
    opened = {combine({**known, 2: secrets.token_bytes(16)}) for _ in range(50)}
    assert len(opened) == 50


def test_shares_of_one_secret_differ_every_time():
    assert split(bytes(16), 2, 3) != split(bytes(16), 2, 3)


def test_an_element_times_its_inverse_is_one():
    for _ in range(50):
        value = int.from_bytes(secrets.token_bytes(16)) or 1
        assert _multiply(value, _inverse(value)) == 1


def test_multiplication_is_that_of_the_galois_counter_mode_field():
    # x^127 * x = x^128 = x^7 + x^2 + x + 1
    assert _multiply(1 << 127, 2) == 0b10000111


def test_derived_keys_are_those_of_hkdf():
    secret = secrets.token_bytes(16)
    assert derive(secret, b"mask") == HKDF(secret, 32, b"", SHA256, context=CONTEXT + b"mask")


def test_both_sides_agree_on_a_key_and_purposes_differ():
    one, other = private_key(secrets.token_bytes(16)), private_key(secrets.token_bytes(16))
    key = agree(one, public_bytes(other), b"mask")
    assert key == agree(other, public_bytes(one), b"mask")
    assert key != agree(other, public_bytes(one), b"sealing")


def test_the_curve_is_that_of_rfc_7748():
    alice = import_x25519_private_key(
        bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    )
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert public_bytes(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert agree(alice, bob, b"mask") == derive(shared, b"mask")

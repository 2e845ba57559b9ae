"""The certificates of a SuperLink on this machine, and a key for each SuperNode.

    python certificates.py FOLDER hospital-a hospital-b

`ca.crt` is what everybody trusts, `server.pem` and `server.key` are the SuperLink's own. A SuperNode signs
its requests with `NAME.key`; its public half, `NAME.pub`, is registered with the SuperLink.
"""

import argparse
import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

VALID = datetime.timedelta(days=30)


def make_certificates(folder: Path, address: str = "127.0.0.1") -> None:
    """An authority, and a certificate by it for the SuperLink at `address`."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _named("Authority of an example")
    ca = (
        _certificate(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA256())
    )
    alternative = [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName("localhost")]
    own = (
        _certificate(_named(address), issuer, server.public_key())
        .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(ca.public_bytes(pem))
    (folder / "server.pem").write_bytes(own.public_bytes(pem))
    _write_private(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def make_keys(folder: Path, name: str) -> None:
    """A SuperNode's key, and its public half."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(folder / f"{name}.key", key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + VALID)
    )


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    path.touch(mode=0o600)
    content = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path.write_bytes(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="of the SuperNodes")
    given = parser.parse_args()
    make_certificates(given.folder)
    for node in given.names:
        make_keys(given.folder, node)

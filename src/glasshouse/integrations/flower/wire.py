"""The messages of secure aggregation as Flower's records: numbers, bytes and arrays, nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from glasshouse.federation.secagg.client import Secrets
from glasshouse.federation.secagg.messages import Keys, Request, Revealed, Sealed, Shared, Terms
from glasshouse.federation.secagg.ring import Ring

Fields = dict[str, Any]


def terms_to(terms: Terms) -> Fields:
    """The terms as fields of a record."""
    return {
        "clip": float(terms.ring.clip),
        "bits": terms.ring.bits,
        "summands": terms.ring.clients,
        "length": terms.length,
        "holders": terms.holders,
        "threshold": terms.threshold,
        "fewest": terms.fewest,
        "largest": terms.largest,
    }


def terms_from(fields: Mapping[str, Any]) -> Terms:
    """The terms that a server announced."""
    ring = Ring(clip=float(fields["clip"]), bits=int(fields["bits"]), clients=int(fields["summands"]))
    whole = {name: int(fields[name]) for name in ("length", "holders", "threshold", "fewest", "largest")}
    return Terms(ring=ring, **whole)


def keys_to(keys: Sequence[Keys]) -> Fields:
    """Public keys, those of a client at each place of the lists."""
    return {
        "clients": [key.client for key in keys],
        "sealing": [key.sealing for key in keys],
        "masking": [key.masking for key in keys],
    }


def keys_from(fields: Mapping[str, Any]) -> list[Keys]:
    """Public keys; the clients are those that the message names."""
    columns = (fields["clients"], fields["sealing"], fields["masking"])
    return [Keys(*entries) for entries in zip(*columns, strict=True)]


def shared_to(shared: Shared) -> Fields:
    """Sealed shares, and what they are committed to."""
    return {"sealed": shared.sealed, "commitments": shared.commitments, "seed": shared.seed}


def shared_from(client: int, fields: Mapping[str, Any]) -> Shared:
    """The sealed shares of `client`."""
    return Shared(client, _bytes(fields["sealed"]), _bytes(fields["commitments"]), _bytes(fields["seed"]))


def inbox_to(inbox: Sequence[Sealed]) -> Fields:
    """The sealed shares for one client."""
    return {
        "senders": [sealed.sender for sealed in inbox],
        "recipients": [sealed.recipient for sealed in inbox],
        "texts": [sealed.text for sealed in inbox],
        "commitments": [sealed.commitments for sealed in inbox],
    }


def inbox_from(fields: Mapping[str, Any]) -> list[Sealed]:
    """The sealed shares in a message."""
    columns = (fields[name] for name in ("senders", "recipients", "texts", "commitments"))
    return [Sealed(*entries) for entries in zip(*columns, strict=True)]


def request_to(request: Request) -> Fields:
    """Whose shares are asked for."""
    return {"survivors": list(request.survivors), "dropped": list(request.dropped)}


def request_from(fields: Mapping[str, Any]) -> Request:
    """Whose shares a message asks for."""
    return Request(tuple(fields["survivors"]), tuple(fields["dropped"]))


def revealed_to(revealed: Revealed) -> Fields:
    """Shares of secrets, with their owners."""
    return {**_by_owner("seeds", revealed.seeds), **_by_owner("keys", revealed.keys)}


def revealed_from(client: int, fields: Mapping[str, Any]) -> Revealed:
    """The shares that `client` reveals."""
    return Revealed(client, seeds=_owned("seeds", fields), keys=_owned("keys", fields))


def secrets_to(secrets: Secrets) -> Fields:
    """What a client keeps between messages, for the state of its context."""
    fields: Fields = {
        "secret-masking": secrets.masking,
        "secret-seed": secrets.seed,
        "secret-sealing": secrets.sealing,
        "own-share": secrets.own_share,
        **_by_owner("sealing-keys", secrets.sealing_keys),
    }
    if secrets.keys is not None:
        fields |= keys_to(secrets.keys)
    if secrets.held is not None:
        fields |= _by_owner("held", secrets.held)
    if secrets.answered is not None:
        fields |= request_to(secrets.answered)
    return fields


def secrets_from(fields: Mapping[str, Any]) -> Secrets:
    """What a client kept."""
    return Secrets(
        masking=fields["secret-masking"],
        seed=fields["secret-seed"],
        sealing=fields["secret-sealing"],
        keys=tuple(keys_from(fields)) if "sealing" in fields else None,
        sealing_keys=_owned("sealing-keys", fields),
        own_share=fields["own-share"],
        held=_owned("held", fields) if "held" in fields else None,
        answered=request_from(fields) if "survivors" in fields else None,
    )


def _by_owner(name: str, entries: Mapping[int, bytes]) -> Fields:
    return {f"{name}-owners": list(entries), name: list(entries.values())}


def _owned(name: str, fields: Mapping[str, Any]) -> dict[int, bytes]:
    return dict(zip(fields[f"{name}-owners"], fields[name], strict=True))


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} in the place of bytes")
    return value

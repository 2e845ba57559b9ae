"""A client's side of secure aggregation: masks, shares of secrets, and refusals of unsafe requests."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.federation.secagg.keys import (
    SECRET_BYTES,
    agree,
    commit,
    derive,
    mask_purpose,
    private_key,
    public_bytes,
)
from glasshouse.federation.secagg.masks import add_mask
from glasshouse.federation.secagg.messages import (
    SEALED_BYTES,
    Keys,
    Masked,
    Refused,
    Request,
    Revealed,
    Sealed,
    Shared,
    Terms,
)
from glasshouse.federation.secagg.ring import Words
from glasshouse.federation.secagg.sharing import split


@dataclass(frozen=True)
class Secrets:
    """All that a client keeps between two messages of a round; nobody else may see it.

    `held` are the shares that it holds, by their owners, once it has sent its masked vector, and `answered`
    is the request that it has answered.
    """

    masking: bytes
    seed: bytes
    sealing: bytes
    keys: tuple[Keys, ...] | None
    sealing_keys: Mapping[int, bytes]
    own_share: bytes
    held: Mapping[int, bytes] | None
    answered: Request | None


class Client:
    """One client in one round, with `samples` samples; it answers each message once."""

    def __init__(self, name: int, samples: int, terms: Terms) -> None:
        self.name = name
        self._samples = samples
        self._terms = terms
        if 2 * terms.threshold <= terms.holders:
            raise self._refusal(f"a threshold of {terms.threshold} lets two halves open the same secret")
        if samples > terms.largest:
            raise self._refusal(f"{terms.largest} is said to be the most samples, and it has more")
        self._masking_secret, self._seed = (secrets.token_bytes(SECRET_BYTES) for _ in range(2))
        self._sealing = private_key(secrets.token_bytes(SECRET_BYTES))
        self._masking = private_key(self._masking_secret)
        self._public = Keys(self.name, public_bytes(self._sealing), public_bytes(self._masking))
        self._keys: dict[int, Keys] | None = None
        self._sealing_keys: dict[int, bytes] = {}
        self._kept = b""
        self._held: dict[int, bytes] | None = None
        self._answered: tuple[Request, Revealed] | None = None

    def secrets(self) -> Secrets:
        """What to keep until the next message, where the client does not stay in memory."""
        return Secrets(
            masking=self._masking_secret,
            seed=self._seed,
            sealing=self._sealing.private_bytes_raw(),
            keys=None if self._keys is None else tuple(self._keys.values()),
            sealing_keys=self._sealing_keys,
            own_share=self._kept,
            held=self._held,
            answered=None if self._answered is None else self._answered[0],
        )

    @classmethod
    def resumed(cls, name: int, samples: int, terms: Terms, secrets: Secrets) -> "Client":
        """The client that kept `secrets`, as it was."""
        client = cls(name, samples, terms)
        client._masking_secret, client._seed = secrets.masking, secrets.seed
        client._sealing = X25519PrivateKey.from_private_bytes(secrets.sealing)
        client._masking = private_key(secrets.masking)
        client._public = Keys(name, public_bytes(client._sealing), public_bytes(client._masking))
        client._keys = None if secrets.keys is None else {key.client: key for key in secrets.keys}
        client._sealing_keys, client._kept = dict(secrets.sealing_keys), secrets.own_share
        client._held = None if secrets.held is None else dict(secrets.held)
        if secrets.answered is not None:
            client._answered = secrets.answered, client._shares(secrets.answered)
        return client

    def advertise(self) -> Keys:
        """Round 0: the public keys."""
        return self._public

    def share(self, keys: Sequence[Keys]) -> Shared:
        """Round 1: given the public keys of itself and its neighbours, seal shares of both secrets for each.

        It commits to what it hands out, so that nobody can pass off other shares as its own.
        """
        if self._keys is not None:
            raise self._refusal("its secrets are shared already")
        self._keys = self._checked(keys)
        shares = split(self._masking_secret + self._seed, self._terms.threshold, len(keys))
        sealed, commitments = [], []
        for holder, share in zip(sorted(self._keys), shares):
            commitments.append(commitments_to(self.name, holder, share))
            if holder == self.name:
                self._kept = share
                sealed.append(bytes(SEALED_BYTES))
                continue
            key = self._agree(self._sealing, self._keys[holder].sealing, b"sealing")
            self._sealing_keys[holder] = key
            sealed.append(ChaCha20Poly1305(key).encrypt(_nonce(self.name, holder), share, None))
        seed = commit("seed", self.name, self.name, self._seed)
        return Shared(self.name, b"".join(sealed), b"".join(commitments), seed)

    def mask(self, inbox: Sequence[Sealed], delta: Tensor) -> Masked:
        """Round 2: given the shares of the neighbours still there, send the update under all masks."""
        if self._keys is None or self._held is not None:
            raise self._refusal("it is asked for its masked vector out of turn")
        if len(inbox) + 1 < self._terms.threshold:
            raise self._refusal(f"{len(inbox) + 1} clients are left, {self._terms.threshold} are needed")
        held = {self.name: self._kept, **{sealed.sender: self._opened(sealed) for sealed in inbox}}
        if len(held) != len(inbox) + 1:
            raise self._refusal("one sender's shares came twice")
        self._held = held
        purpose = mask_purpose(self._terms, self._keys.values())
        words = self._quantised(delta)
        add_mask(words, derive(self._seed, b"own mask"))
        for other in held:
            if other != self.name:
                key = self._agree(self._masking, self._keys[other].masking, purpose)
                add_mask(words, key, subtract=self.name > other)
        self._sealing_keys, self._keys = {}, {}  # a round of many clients would hold them all
        return Masked(self.name, words)

    def reveal(self, request: Request) -> Revealed:
        """Round 3: shares of survivors' seeds and of the masking keys of dropped clients: never both of one.

        The same request is answered again, another one in the same round is not.
        """
        if self._held is None:
            raise self._refusal("it is asked for shares before it has sent its masked vector")
        if self._answered is not None:
            if self._answered[0] != request:
                raise self._refusal("another request was answered in this round")
            return self._answered[1]
        survivors, dropped = set(request.survivors), set(request.dropped)
        if survivors & dropped:
            raise self._refusal(f"both kinds of share are asked for of client {min(survivors & dropped)}")
        if len(survivors) < self._terms.threshold:
            raise self._refusal(
                f"{len(survivors)} clients are in the sum, {self._terms.threshold} are needed"
            )
        if self.name not in survivors:
            raise self._refusal("it is asked to open masks of a sum that it is not part of")
        if survivors | dropped != set(self._held):
            raise self._refusal("the request does not name the clients that share secrets with it")
        self._answered = request, self._shares(request)
        return self._answered[1]

    def _shares(self, request: Request) -> Revealed:
        assert self._held is not None
        return Revealed(
            self.name,
            seeds={client: self._held[client][SECRET_BYTES:] for client in request.survivors},
            keys={client: self._held[client][:SECRET_BYTES] for client in request.dropped},
        )

    def _checked(self, keys: Sequence[Keys]) -> dict[int, Keys]:
        """The public keys by client, if a round can be played with them."""
        by_client = {key.client: key for key in keys}
        public = {public for key in keys for public in (key.sealing, key.masking)}
        if len(by_client) != len(keys) or len(public) != 2 * len(keys):
            raise self._refusal("a client or a public key is listed twice")
        if by_client.get(self.name) != self._public:
            raise self._refusal("its own public keys were exchanged")
        if not self._terms.threshold <= len(keys) <= self._terms.holders:
            raise self._refusal(f"{len(keys)} clients do not fit the announced terms")
        return by_client

    def _opened(self, sealed: Sealed) -> bytes:
        """Both shares in a sealed message, if they are those that their owner committed to."""
        if sealed.recipient != self.name or sealed.sender not in self._sealing_keys:
            raise self._refusal(f"shares from {sealed.sender} to {sealed.recipient} are not for it")
        cipher = ChaCha20Poly1305(self._sealing_keys[sealed.sender])
        try:
            share = cipher.decrypt(_nonce(sealed.sender, self.name), sealed.text, None)
        except InvalidTag:
            raise self._refusal(f"the shares of client {sealed.sender} were changed on the way") from None
        if commitments_to(sealed.sender, self.name, share) != sealed.commitments:
            raise self._refusal(f"client {sealed.sender} committed to other shares than it sent")
        return share

    def _agree(self, private: X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
        try:
            return agree(private, public, purpose)
        except ValueError:
            raise self._refusal(f"{public.hex()} is no usable public key") from None

    def _quantised(self, delta: Tensor) -> Words:
        if delta.shape != (self._terms.length,):
            raise BadInput(
                f"client {self.name}: its update has shape {tuple(delta.shape)}, "
                f"the others' ({self._terms.length},)"
            )
        scale = self._samples / self._terms.largest
        try:
            return self._terms.ring.quantise(delta.detach().numpy(), scale)
        except BadInput as error:
            raise BadInput(f"client {self.name}: {error}; lower its learning rate") from None

    def _refusal(self, reason: str) -> Refused:
        return Refused(f"client {self.name} refuses: {reason}")


def commitments_to(owner: int, holder: int, share: bytes) -> bytes:
    """The commitments, 64 bytes, to the two shares of `owner`'s secrets that `holder` gets, one for each."""
    return commit("key share", owner, holder, share[:SECRET_BYTES]) + commit(
        "seed share", owner, holder, share[SECRET_BYTES:]
    )


def _nonce(sender: int, recipient: int) -> bytes:
    """A key serves one message in each direction, told apart by the nonce."""
    return bytes(11) + bytes([sender > recipient])

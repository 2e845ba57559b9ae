"""A client's side of secure aggregation: masks, shares of secrets, and refusals of unsafe requests."""

import secrets
from collections.abc import Sequence

from Crypto.Cipher import ChaCha20_Poly1305
from Crypto.Cipher.ChaCha20_Poly1305 import ChaCha20Poly1305Cipher
from Crypto.PublicKey.ECC import EccKey

from glasshouse.errors import BadInput
from glasshouse.federation.secagg import messages
from glasshouse.federation.secagg.keys import SECRET_BYTES, agree, derive, private_key, public_bytes
from glasshouse.federation.secagg.masks import add_mask
from glasshouse.federation.secagg.messages import Keys, Masked, Refused, Request, Revealed, Sealed, Terms
from glasshouse.federation.secagg.ring import Words
from glasshouse.federation.secagg.sharing import split
from glasshouse.federation.updates import Update


class Client:
    """One client in one round; it answers each message once."""

    def __init__(self, update: Update, terms: Terms) -> None:
        self.name = update.client
        self._update = update
        self._terms = terms
        if 2 * terms.threshold <= terms.ring.clients:
            raise self._refusal(f"a threshold of {terms.threshold} lets two halves open the same secret")
        if update.samples > terms.largest:
            raise self._refusal(f"{terms.largest} is said to be the most samples, and it has more")
        self._masking_secret, self._seed = (secrets.token_bytes(SECRET_BYTES) for _ in range(2))
        self._sealing = private_key(secrets.token_bytes(SECRET_BYTES))
        self._masking = private_key(self._masking_secret)
        self._public = Keys(self.name, public_bytes(self._sealing), public_bytes(self._masking))
        self._keys: dict[int, Keys] | None = None
        self._sealing_keys: dict[int, bytes] = {}
        self._kept = b"", b""
        self._held: dict[int, tuple[bytes, bytes]] | None = None
        self._answered: tuple[Request, Revealed] | None = None

    def advertise(self) -> Keys:
        """Round 0: the public keys."""
        return self._public

    def share(self, keys: Sequence[Keys]) -> list[Sealed]:
        """Round 1: given everyone's public keys, seal shares of both secrets for each of them."""
        if self._keys is not None:
            raise self._refusal("its secrets are shared already")
        self._keys = self._checked(keys)
        count, threshold = len(keys), self._terms.threshold
        masking = split(self._masking_secret, threshold, count)
        seeds = split(self._seed, threshold, count)
        sealed = []
        for client, holder in messages.holders(self._keys).items():
            pair = masking[holder - 1], seeds[holder - 1]
            if client == self.name:
                self._kept = pair
                continue
            self._sealing_keys[client] = self._agree(self._sealing, self._keys[client].sealing, b"sealing")
            cipher = self._cipher(self.name, client, self._sealing_keys[client])
            sealed.append(Sealed(self.name, client, *cipher.encrypt_and_digest(b"".join(pair))))
        return sealed

    def mask(self, inbox: Sequence[Sealed]) -> Masked:
        """Round 2: given the shares of the clients still there, send the update under all masks."""
        if self._keys is None or self._held is not None:
            raise self._refusal("it is asked for its masked vector out of turn")
        if len(inbox) + 1 < self._terms.threshold:
            raise self._refusal(f"{len(inbox) + 1} clients are left, {self._terms.threshold} are needed")
        self._held = {self.name: self._kept, **{sealed.sender: self._opened(sealed) for sealed in inbox}}
        if len(self._held) != len(inbox) + 1:
            raise self._refusal("one sender's shares came twice")
        words = self._quantised()
        add_mask(words, derive(self._seed, b"own mask"))
        for other in self._held:
            if other != self.name:
                key = self._agree(self._masking, self._keys[other].masking, b"mask")
                add_mask(words, key, subtract=self.name > other)
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
            raise self._refusal("the request does not name the clients that share secrets in this round")
        answer = Revealed(
            self.name,
            seeds={client: self._held[client][1] for client in request.survivors},
            keys={client: self._held[client][0] for client in request.dropped},
        )
        self._answered = request, answer
        return answer

    def _checked(self, keys: Sequence[Keys]) -> dict[int, Keys]:
        """The public keys by client, if a round can be played with them."""
        by_client = {key.client: key for key in keys}
        public = {public for key in keys for public in (key.sealing, key.masking)}
        if len(by_client) != len(keys) or len(public) != 2 * len(keys):
            raise self._refusal("a client or a public key is listed twice")
        if by_client.get(self.name) != self._public:
            raise self._refusal("its own public keys were exchanged")
        if not self._terms.threshold <= len(keys) <= self._terms.ring.clients:
            raise self._refusal(f"{len(keys)} clients do not fit the announced terms")
        return by_client

    def _opened(self, sealed: Sealed) -> tuple[bytes, bytes]:
        """The two shares in a sealed message."""
        if sealed.recipient != self.name or sealed.sender not in self._sealing_keys:
            raise self._refusal(f"shares from {sealed.sender} to {sealed.recipient} are not for it")
        cipher = self._cipher(sealed.sender, self.name, self._sealing_keys[sealed.sender])
        try:
            text = cipher.decrypt_and_verify(sealed.text, sealed.tag)
        except ValueError:
            raise self._refusal(f"the shares of client {sealed.sender} were changed on the way") from None
        return text[:SECRET_BYTES], text[SECRET_BYTES:]

    def _cipher(self, sender: int, recipient: int, key: bytes) -> ChaCha20Poly1305Cipher:
        """Authenticated encryption; a key serves one message in each direction, told apart by the nonce."""
        nonce = bytes(11) + bytes([sender > recipient])
        return ChaCha20_Poly1305.new(key=key, nonce=nonce)

    def _agree(self, private: EccKey, public: bytes, purpose: bytes) -> bytes:
        try:
            return agree(private, public, purpose)
        except ValueError:
            raise self._refusal(f"{public.hex()} is no usable public key") from None

    def _quantised(self) -> Words:
        scale = self._update.samples / self._terms.largest
        try:
            return self._terms.ring.quantise(self._update.delta.detach().numpy(), scale)
        except BadInput as error:
            raise BadInput(f"client {self.name}: {error}; lower its learning rate") from None

    def _refusal(self, reason: str) -> Refused:
        return Refused(f"client {self.name} refuses: {reason}")

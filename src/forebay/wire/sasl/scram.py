"""SCRAM (RFC 5802, RFC 7677): its keys and its messages, for both sides.

A client proves that it knows the password without sending it, and the server proves that it knows the user.
The server stores two keys that are derived from the password. Neither lets the server, or a reader of its
store, log in as the user; but weak passwords can be guessed from them.

As in Kafka, names and passwords are UTF-8 and not normalised (no SASLprep), and there is no channel binding.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from enum import Enum

from forebay.errors import ProtocolError
from forebay.lazy import dataclass

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
ITERATIONS_DEFAULT = 4096
NONCE_CHARS_MAX = 256
TOKEN_EXTENSION = "tokenauth"
_GS2_HEADER = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,")
_CLIENT_FIRST = re.compile(
    r"(?:m=[^,]*,)?n=(?P<user>[^,]*),r=(?P<nonce>[!-+\--~]+)(?P<extensions>(?:,.*)?)", re.S
)
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[^,]+),i=(?P<iterations>[1-9][0-9]{0,8})(?:,.*)?", re.S
)
_CLIENT_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?),p=(?P<proof>[^,]+)", re.S
)
_SERVER_FINAL = re.compile(r"(?:v=(?P<signature>[^,]+)|e=(?P<error>[^,]*))(?:,.*)?", re.S)


class ScramMechanism(Enum):
    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, sasl_name: str, code: int, hash_name: str) -> None:
        self.sasl_name = sasl_name
        self.code = code
        """The number in the messages that alter and describe credentials."""
        self.hash_name = hash_name

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.hash_name).digest_size

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Slow on purpose: a millisecond and more."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def stored_key(self, salted_password: bytes) -> bytes:
        return self.digest(self.mac(salted_password, b"Client Key"))

    def server_key(self, salted_password: bytes) -> bytes:
        return self.mac(salted_password, b"Server Key")


BY_NAME = {each.sasl_name: each for each in ScramMechanism}
BY_CODE = {each.code: each for each in ScramMechanism}


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(text: str) -> str:
    if re.search("=(?!2C|3D)", text):
        raise ProtocolError("a SCRAM user name has an '=' that is not =2C or =3D")
    return text.replace("=2C", ",").replace("=3D", "=")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    user: str
    nonce: str
    authzid: str
    """The user to act as; empty for itself."""
    is_token: bool = False
    """True if the name is the id of a delegation token (KIP-48)."""
    gs2_header: str
    bare: str
    """The signed part: the message without its header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFirst:
    nonce: str
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFinal:
    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


def parse_client_first(data: bytes) -> ClientFirst:
    text = _text(data)
    header = _GS2_HEADER.match(text)
    if header is None:
        raise ProtocolError("the first SCRAM message asks for channel binding, or is none")
    bare = text[header.end() :]
    match = _CLIENT_FIRST.fullmatch(bare)
    if match is None or bare.startswith("m=") or len(match["nonce"]) > NONCE_CHARS_MAX:
        raise ProtocolError("the first SCRAM message of the client cannot be read")
    return ClientFirst(
        user=unescaped(match["user"]),
        nonce=match["nonce"],
        authzid=unescaped(header["authzid"] or ""),
        is_token=_is_token(match["extensions"]),
        gs2_header=header[0],
        bare=bare,
    )


def _is_token(extensions: str) -> bool:
    pairs = dict(part.partition("=")[::2] for part in extensions.split(","))
    return pairs.get(TOKEN_EXTENSION, "").lower() == "true"


def parse_server_first(data: bytes) -> ServerFirst:
    match = _SERVER_FIRST.fullmatch(_text(data))
    if match is None:
        raise ProtocolError("the first SCRAM message of the server cannot be read")
    return ServerFirst(
        nonce=match["nonce"], salt=_decoded(match["salt"]), iterations=int(match["iterations"])
    )


def parse_client_final(data: bytes) -> ClientFinal:
    match = _CLIENT_FINAL.fullmatch(_text(data))
    if match is None:
        raise ProtocolError("the final SCRAM message of the client cannot be read")
    return ClientFinal(
        channel_binding=_decoded(match["binding"]),
        nonce=match["nonce"],
        proof=_decoded(match["proof"]),
        without_proof=match["bare"],
    )


def parse_server_final(data: bytes) -> bytes:
    """The server's signature; raises ProtocolError, with the server's text if that is an error."""
    match = _SERVER_FINAL.fullmatch(_text(data))
    if match is None:
        raise ProtocolError("the final SCRAM message of the server cannot be read")
    if match["signature"] is None:
        raise ProtocolError(f"the server refused the login: {match['error']}")
    return _decoded(match["signature"])


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ProtocolError("a SCRAM message has a part that is not base64") from None


def _text(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise ProtocolError("a SCRAM message is not UTF-8") from None

"""Encrypts the credentials of connectors for storage: their parameters and signing secrets."""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from functools import lru_cache

import structlog
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from catalog.errors import DecryptionError, SecretKeyError

_SHORTEST_PASSPHRASE = 16
_FEWEST_CHARACTERS = 8
# A key behind the first one only decrypts. Earlier versions accepted shorter ones.
_SHORTEST_OLD_PASSPHRASE = 8
# Published with this project: in deploy/compose.yaml, and in README.md of earlier versions.
_WELL_KNOWN = frozenset(("for trying out only", "a long random passphrase"))
_REQUIRED = (
    f"a Fernet key, or a passphrase of {_SHORTEST_PASSPHRASE} characters or more with "
    f"{_FEWEST_CHARACTERS} different ones among them"
)
_log = structlog.get_logger(__name__)
_FERNET_KEY_BYTES = 32
_SALT = b"proximity-engine connector secrets"
MISSING_SECRET_KEY = (
    "PROXIMITY_SECRET_KEY is not set, and a connector's parameters are stored encrypted only; "
    f"set it to {_REQUIRED}"
)


class Cipher:
    """Encrypts with the first key, decrypts with any: to rotate, put the new key in front."""

    def __init__(self, keys: Sequence[Fernet]) -> None:
        self._first = keys[0]
        self._keys = MultiFernet(keys)

    def encrypt(self, text: str) -> str:
        """A token for the text; another one each time."""
        return self._keys.encrypt(text.encode()).decode("ascii")

    def decrypt(self, token: str) -> str:
        """The text of a token. Raises DecryptionError."""
        try:
            return self._keys.decrypt(token).decode()
        except (InvalidToken, ValueError):  # not even base64, or not of UTF-8
            raise DecryptionError(
                "a stored connector secret cannot be decrypted with PROXIMITY_SECRET_KEY; "
                "add the key it was stored with, after a comma"
            ) from None

    def renewed(self, token: str) -> str | None:
        """A token of the first key for the same text; None if this one is of it.

        Raises DecryptionError.
        """
        try:
            self._first.decrypt(token)
        except (InvalidToken, ValueError):
            return self.encrypt(self.decrypt(token))
        return None


def open_cipher(secret_key: str) -> Cipher:
    """The cipher for the setting SECRET_KEY: one key, or several with commas between them.

    Each is a Fernet key (32 bytes in URL-safe base64), used as it is, or a passphrase of 16
    characters or more, from which a key is derived with scrypt (n=16384, r=8, p=1, fixed salt);
    behind the first one, which encrypts, shorter ones of earlier versions are taken.
    Spaces around a key do not count, and a passphrase cannot contain a comma. A key that is
    published with this project is warned of. Raises SecretKeyError.
    """
    keys = _keys(secret_key)
    if not keys:
        raise SecretKeyError(MISSING_SECRET_KEY)
    if is_published(secret_key):
        _log.warning(
            "PROXIMITY_SECRET_KEY is the published one, for trying out: whoever reads the database "
            "can decrypt connector secrets; set a key of your own"
        )
    return Cipher([_fernet(key, number) for number, key in enumerate(keys, start=1)])


def is_published(secret_key: str) -> bool:
    """Whether one of its keys can be read in this project."""
    return not _WELL_KNOWN.isdisjoint(_keys(secret_key))


def _keys(secret_key: str) -> list[str]:
    return [part.strip() for part in secret_key.split(",") if part.strip()]


@lru_cache(maxsize=8)  # one process opens it for several purposes, and scrypt takes 50 ms
def _fernet(key: str, number: int) -> Fernet:
    if _is_fernet_key(key):
        return Fernet(key)
    if not _is_strong(key) and (number == 1 or len(key) < _SHORTEST_OLD_PASSPHRASE):
        raise SecretKeyError(
            f"key {number} of PROXIMITY_SECRET_KEY is too weak; set it to {_REQUIRED}, such as "
            "`openssl rand -base64 32` prints; an old key goes behind it, after a comma"
        )
    derived = hashlib.scrypt(key.encode(), salt=_SALT, n=2**14, r=8, p=1, dklen=_FERNET_KEY_BYTES)
    return Fernet(base64.urlsafe_b64encode(derived))


def _is_strong(passphrase: str) -> bool:
    long_enough = len(passphrase) >= _SHORTEST_PASSPHRASE
    return long_enough and len(set(passphrase)) >= _FEWEST_CHARACTERS


def _is_fernet_key(key: str) -> bool:
    try:
        # Canonical only: base64 decodes sloppily, and a sentence must not pass for a key.
        raw = base64.urlsafe_b64decode(key)
        return len(raw) == _FERNET_KEY_BYTES and base64.urlsafe_b64encode(raw) == key.encode()
    except (ValueError, binascii.Error):
        return False

"""Encrypts the credentials of connectors for storage: their parameters and signing secrets."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import structlog
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from catalog.errors import DecryptionError, SecretKeyError
from catalog.models import Connector

# Published with this project: in deploy/compose.yaml, and in README.md of earlier versions.
_WELL_KNOWN = frozenset(("for trying out only", "a long random passphrase"))
_REQUIRED = "a Fernet key, or a passphrase of 16 characters or more"
_log = structlog.get_logger(__name__)
_FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")  # 32 bytes
_SALT = b"proximity-engine connector secrets"
MISSING_SECRET_KEY = (
    "PROXIMITY_SECRET_KEY is not set, and a connector's parameters are stored encrypted only; "
    f"set it to {_REQUIRED}"
)


class Cipher:
    """Encrypts with the first key and decrypts with any of them, so that keys can be rotated."""

    def __init__(self, keys: Sequence[Fernet]) -> None:
        self._keys = MultiFernet(keys)

    def encrypt(self, text: str) -> str:
        """A token for the text; each call gives another token."""
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


def open_cipher(secret_key: str) -> Cipher:
    """The cipher for the setting SECRET_KEY: one key, or several with commas between them.

    A key is either a Fernet key (32 bytes in URL-safe base64), used as it is, or a passphrase of 16
    characters or more, from which scrypt derives a key (n=16384, r=8, p=1, fixed salt). The first
    key encrypts. Spaces around a key do not count, and a passphrase cannot contain a comma. A key
    that is published with this project leads to a warning. Raises SecretKeyError.
    """
    keys = _keys(secret_key)
    if not keys:
        raise SecretKeyError(MISSING_SECRET_KEY)
    if is_published(secret_key):
        _log.warning(
            "PROXIMITY_SECRET_KEY is the published one, for trying out: whoever reads the database "
            "can decrypt connector secrets; set a key of your own"
        )
    return Cipher([_fernet(key) for key in keys])


def is_published(secret_key: str) -> bool:
    """Whether the setting holds a key that is published with this project."""
    return not _WELL_KNOWN.isdisjoint(_keys(secret_key))


def _keys(secret_key: str) -> list[str]:
    return [part.strip() for part in secret_key.split(",") if part.strip()]


@lru_cache(maxsize=8)  # one process opens it for several purposes, and scrypt takes 50 ms
def _fernet(key: str) -> Fernet:
    if _FERNET_KEY.fullmatch(key):
        return Fernet(key)
    derived = hashlib.scrypt(key.encode(), salt=_SALT, n=2**14, r=8, p=1, dklen=32)
    return Fernet(base64.urlsafe_b64encode(derived))


def encrypted(
    cipher: Cipher, stored: Connector | None, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The values with `parameters` and `secret` encrypted; an unchanged value keeps its token."""
    tokens = dict(values)
    for name in ("parameters", "secret"):
        token = getattr(stored, name, None)
        plain = values.get(name)
        if plain is not None:
            tokens[name] = token if _decrypts_to(cipher, token, plain) else cipher.encrypt(plain)
    return tokens


def _decrypts_to(cipher: Cipher, token: str | None, plain: str) -> bool:
    try:
        return token is not None and cipher.decrypt(token) == plain
    except DecryptionError:
        return False

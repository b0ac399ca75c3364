"""Hashes the passwords of accounts with argon2id, with the library's current parameters."""

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_PASSWORD_LENGTH = 8
_hasher = PasswordHasher()


def hash_password(password: str) -> str:
    """The hash to store. Takes tens of milliseconds and tens of MB: run it in a thread."""
    return _hasher.hash(password)


def verify_password(stored: str, password: str) -> bool:
    """Whether the password matches the stored hash; takes as long as hashing."""
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False

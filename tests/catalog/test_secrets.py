"""Passwords and the keys of connector secrets."""

from base64 import urlsafe_b64encode

import pytest
import structlog

from catalog.accounts import hash_password, verify_password
from catalog.errors import DecryptionError, SecretKeyError
from catalog.secrets import open_cipher

PHRASE = "sixteen letters!"


FERNET_KEY = urlsafe_b64encode(bytes(range(32))).decode()


def test_a_new_key_in_front_still_reads_the_old():
    old = open_cipher(PHRASE)
    both = open_cipher(f"another passphrase,{PHRASE}")
    assert both.decrypt(old.encrypt("x")) == "x"
    with pytest.raises(DecryptionError, match="PROXIMITY_SECRET_KEY"):
        old.decrypt(both.encrypt("x"))


@pytest.mark.parametrize("key", ["", " , ", "shorties", "fifteen shorts!", f"{PHRASE},shortie"])
def test_a_weak_key_is_refused(key: str):
    with pytest.raises(SecretKeyError, match="16 characters or more") as caught:
        open_cipher(key)
    assert "shorti" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("known", ["for trying out only", "a long random passphrase"])
def test_a_published_key_is_loud(known: str):
    with structlog.testing.capture_logs() as logs:
        open_cipher(PHRASE)
        assert logs == []
        open_cipher(known)
    assert [(line["log_level"], "published" in line["event"]) for line in logs] == [
        ("warning", True)
    ]
    assert known not in str(logs)


def test_a_password_is_hashed():
    stored = hash_password("correct horse")
    assert stored.startswith("$argon2id$")
    assert verify_password(stored, "correct horse")
    assert not verify_password(stored, "wrong horse")
    assert not verify_password("not a hash", "correct horse")

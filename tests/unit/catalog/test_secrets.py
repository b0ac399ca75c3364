from base64 import urlsafe_b64encode

import pytest
from cryptography.fernet import Fernet

from catalog.secrets import DecryptionError, SecretKeyError, open_cipher

PHRASE = "sixteen letters!"


FERNET_KEY = urlsafe_b64encode(bytes(range(32))).decode()


@pytest.mark.parametrize("key", [PHRASE, FERNET_KEY, f" {PHRASE} ,"])
def test_there_and_back(key: str):
    token = open_cipher(key).encrypt("bearer é")
    assert "bearer" not in token
    assert open_cipher(key).decrypt(token) == "bearer é"


def test_a_new_key_in_front_still_reads_the_old():
    old = open_cipher(PHRASE)
    both = open_cipher(f"another passphrase,{PHRASE}")
    assert both.decrypt(old.encrypt("x")) == "x"
    with pytest.raises(DecryptionError, match="PROXIMITY_SECRET_KEY"):
        old.decrypt(both.encrypt("x"))


@pytest.mark.parametrize("token", ["", "plain", "é"])
def test_no_token(token: str):
    with pytest.raises(DecryptionError):
        open_cipher(PHRASE).decrypt(token)


@pytest.mark.parametrize("key", ["", " , ", "short", f"{PHRASE},short"])
def test_no_key(key: str):
    with pytest.raises(SecretKeyError, match="8 characters or more") as caught:
        open_cipher(key)
    assert "short" not in str(caught.value)


def test_a_fernet_key_is_used_as_it_is():
    key = Fernet.generate_key()
    assert Fernet(key).decrypt(open_cipher(key.decode()).encrypt("x")) == b"x"

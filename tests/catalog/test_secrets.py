"""Passwords, the keys of connector secrets, and text from strangers, which neither moves the cursor
nor runs as a formula."""

from typing import Any

import pytest
import structlog

from catalog.errors import DecryptionError, SecretKeyError
from catalog.passwords import hash_password, verify_password
from catalog.plain_text import for_csv, for_terminal
from catalog.secrets import open_cipher

PHRASE = "sixteen letters!"


def test_a_new_key_in_front_still_reads_the_old():
    old = open_cipher(PHRASE)
    both = open_cipher(f"another passphrase,{PHRASE}")
    assert both.decrypt(old.encrypt("x")) == "x"
    with pytest.raises(DecryptionError, match="PROXIMITY_SECRET_KEY"):
        old.decrypt(both.encrypt("x"))


@pytest.mark.parametrize("key", ["", " , "])
def test_no_key_is_refused(key: str):
    with pytest.raises(SecretKeyError, match="16 characters or more"):
        open_cipher(key)


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Harbour Mall, Caf\u00e9 \u65e5\u672c", "Harbour Mall, Caf\u00e9 \u65e5\u672c"),
        ("\x1b]0;title\x07\x1b[2J", "\\u001b]0;title\\u0007\\u001b[2J"),
        ("\x9b31m", "\\u009b31m"),
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),
    ],
)
def test_a_terminal(text: str, shown: str):
    assert for_terminal(text) == shown


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (['=HYPERLINK("http://a";"here")', " =1"], ['\'=HYPERLINK("http://a";"here")', "' =1"]),
        (["\uff1d1", "\t=1"], ["'\uff1d1", "\\u0009=1"]),
        # The separator where the comma is the decimal point.
        (["x;=1+1;y", "a; @b"], ["x;'=1+1;y", "a;' @b"]),
        ([1, -1, None, 2.5, "Harbour Mall", "", "a=b"], None),
    ],
)
def test_no_formula(row: list[Any], written: list[str] | None):
    assert for_csv(row) == (written or row)

from catalog.passwords import hash_password, verify_password


def test_there_and_back():
    stored = hash_password("correct horse")
    assert stored.startswith("$argon2id$")
    assert verify_password(stored, "correct horse")
    assert not verify_password(stored, "wrong horse")
    assert not verify_password("not a hash", "correct horse")

"""Standard Webhooks signatures, against the vector that the specification's libraries share."""

import pytest

from connectors.signing import signature_headers, signing_key

# From the specification's reference libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_published_vector() -> None:
    headers = signature_headers(secret=SECRET, id_=ID, timestamp=1614265330.9, body=BODY)
    assert headers == [
        ("webhook-id", ID),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", SIGNATURE),
    ]


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("whsec_c2VjcmV0", b"secret"),
        ("c2VjcmV0", b"c2VjcmV0"),
        ("plain é", "plain é".encode()),
        ("whsec_not base64!", b"whsec_not base64!"),
    ],
)
def test_keys(secret: str, key: bytes) -> None:
    assert signing_key(secret) == key

"""Standard Webhooks signatures (https://www.standardwebhooks.com), symmetric form. Pure."""

import base64
import binascii
import hashlib
import hmac

_PREFIX = "whsec_"


def signature_headers(
    *, secret: str, id_: str, timestamp: float, body: bytes
) -> list[tuple[str, str]]:
    """The three headers. `timestamp` (epoch s) is the time of the try, in whole seconds.

    The signed text is `<id>.<timestamp>.<body>`; a GET has an empty body.
    """
    seconds = str(int(timestamp))
    signed = b".".join((id_.encode(), seconds.encode(), body))
    digest = hmac.digest(signing_key(secret), signed, hashlib.sha256)
    return [
        ("webhook-id", id_),
        ("webhook-timestamp", seconds),
        ("webhook-signature", f"v1,{base64.b64encode(digest).decode()}"),
    ]


def signing_key(secret: str) -> bytes:
    """The key of a secret: the base64 after `whsec_` (as in the specification), else the text.

    A secret that begins with `whsec_` and goes on with anything but base64 is used as text.
    """
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()

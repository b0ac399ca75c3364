"""Requests the token for a login by OAUTHBEARER from an OIDC provider's token endpoint.

The grant is client credentials (RFC 6749 4.4). No message contains a token or a secret.
"""

import base64
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from engine.kafka.errors import LoginTokenError
from engine.process.bounded_http import BoundedAddress, BoundedAnswer
from engine.process.errors import BoundedHttpError, SettingsError
from engine.process.settings import PREFIX

_OF = f"{PREFIX}KAFKA_SASL_OAUTH_"
_MOST_BYTES = 64 * 1024
_FOUND, _UNAUTHORIZED = 200, 401
_TEMPORARY = (408, 429)  # a timeout and too many requests
# RFC 6750: any other character in a token would end the login message early.
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")
_REASON = re.compile(r"[a-z_]{1,40}")
_DEFAULT_SECONDS = 60.0
_CLIENT_FAULTS = ("invalid_client", "unauthorized_client")


class _Granted(msgspec.Struct):
    access_token: str
    expires_in: float | str | None = None


class _Refused(msgspec.Struct):
    error: str = ""


_granted = msgspec.json.Decoder(_Granted).decode
_refused = msgspec.json.Decoder(_Refused).decode


@dataclass(frozen=True, slots=True)
class LoginToken:
    """A token, and the seconds for which it is valid."""

    text: str = field(repr=False)  # asyncio shows what a task has returned
    seconds: float


@dataclass(frozen=True)
class TokenClient:
    """The client and the endpoint of a token request, with the deadline of one request."""

    url: str
    id: str
    secret: str = field(repr=False)
    scope: str | None
    ca_file: Path | None
    deadline: float


class TokenEndpoint:
    """Requests tokens. Raises SettingsError for a CA file without certificates."""

    def __init__(self, client: TokenClient) -> None:
        self._client = client
        try:
            self._address = BoundedAddress(
                client.url, ca_file=client.ca_file, deadline=client.deadline, most_bytes=_MOST_BYTES
            )
        except (OSError, ValueError):
            fault = "contains no certificate in PEM"
            raise SettingsError(f"{_OF}CA_FILE {client.ca_file}: {fault}") from None
        parts = urlsplit(client.url)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def fetch(self) -> LoginToken:
        """A fresh token. Raises LoginTokenError."""
        client, where = self._client, shown_endpoint(self._client.url)
        try:
            answer = await self._address.fetch(
                self._target, _headers(client), method="POST", body=_body(client)
            )
        except ssl.SSLCertVerificationError as error:
            fault = f"the certificate of {where} is refused ({error.verify_message or error})"
            raise LoginTokenError(f"{fault}: check {_OF}CA_FILE", certain=True) from None
        except TimeoutError:
            fault = f"{where} does not answer within {client.deadline:g} s"
            raise LoginTokenError(f"{fault}: check {_OF}TOKEN_URL, and whether it runs") from None
        except OSError as error:
            fault = f"{where} cannot be reached ({error.strerror or type(error).__name__})"
            raise LoginTokenError(f"{fault}: check {_OF}TOKEN_URL, and whether it runs") from None
        except BoundedHttpError:
            fault = f"{where} is no token endpoint"
            raise LoginTokenError(f"{fault}: check {_OF}TOKEN_URL") from None
        return _read(client, where, answer)


def shown_endpoint(url: str) -> str:
    """The endpoint's address without its query, which may contain secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _headers(client: TokenClient) -> list[tuple[bytes, bytes]]:
    # RFC 6749 2.3.1: each is encoded as in a form before it is encoded as Basic.
    user = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
    return [
        (b"authorization", b"Basic " + base64.b64encode(user.encode())),
        (b"accept", b"application/json"),
        (b"content-type", b"application/x-www-form-urlencoded"),
    ]


def _body(client: TokenClient) -> bytes:
    form = {"grant_type": "client_credentials"}
    if client.scope:
        form["scope"] = client.scope
    return urlencode(form).encode()


def _read(client: TokenClient, where: str, answer: BoundedAnswer) -> LoginToken:
    if answer.status != _FOUND:
        raise _refusal(client, where, answer)
    try:
        granted = _granted(answer.body)
        seconds = _DEFAULT_SECONDS if granted.expires_in is None else float(granted.expires_in)
    except (msgspec.DecodeError, RecursionError, ValueError):
        granted, seconds = _Granted(""), 0.0
    if not _TOKEN.fullmatch(granted.access_token) or not seconds > 0:
        raise LoginTokenError(f"{where} answers with no token: check {_OF}TOKEN_URL")
    return LoginToken(granted.access_token, seconds)


def _refusal(client: TokenClient, where: str, answer: BoundedAnswer) -> LoginTokenError:
    reason = _reason(answer.body)
    shown = f"{answer.status} {reason}".strip()
    if reason in _CLIENT_FAULTS or answer.status == _UNAUTHORIZED:
        fault = f"refuses the client {client.id[:80]!r} ({shown})"
        return LoginTokenError(
            f"{where} {fault}: check {_OF}CLIENT_ID and _CLIENT_SECRET", certain=True
        )
    if reason == "invalid_scope":
        return LoginTokenError(f"{where} refuses the scope: check {_OF}SCOPE", certain=True)
    is_permanent = 400 <= answer.status < 500 and answer.status not in _TEMPORARY
    hint = f": check {_OF}TOKEN_URL" if is_permanent else ""
    return LoginTokenError(
        f"{where} gives no token, it answers {shown}{hint}", certain=is_permanent
    )


def _reason(body: bytes) -> str:
    """The error's name (RFC 6749 5.2), never its description."""
    try:
        reason = _refused(body).error
    except (msgspec.DecodeError, RecursionError):
        return ""
    return reason if _REASON.fullmatch(reason) else ""


def extensions_of(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """The SASL extensions by name."""
    return dict(pair.split("=", 1) for pair in pairs)

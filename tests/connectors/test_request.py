"""The requests that services receive, and their signatures."""

import base64
import hmac
import json
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from connectors.model import HttpMethod, ParameterPlace
from connectors.request import RESERVED_HEADERS, RESERVED_IN_QUERY, build_request, signature_headers
from tests.connectors.calls import CALL, ID, call, document

PARAMETERS = (("X-Token", "abc"), ("lang", "fr é"))


def built(**endpoint: object) -> httpx.Request:
    return build_request(call(**endpoint), agent="proximity-engine/1", now=1_700_000_000.7)


def headers(request: httpx.Request) -> dict[str, str]:
    return dict(request.headers)


def query(request: httpx.Request) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(str(request.url)).query, keep_blank_values=True)


def test_post_carries_the_call_as_json() -> None:
    request = built()
    assert (request.method, str(request.url)) == ("POST", "https://example.org/content")
    assert json.loads(request.content) == CALL.document
    assert headers(request) == {
        "host": "example.org",
        "content-length": str(len(request.content)),
        "user-agent": "proximity-engine/1",
        "accept": "application/json",
        "accept-encoding": "identity",
        "idempotency-key": ID,
        "content-type": "application/json",
    }


def test_get_carries_the_call_flat_in_the_query() -> None:
    request = built(method=HttpMethod.GET)
    assert request.content == b""
    assert query(request) == [
        ("id", ID),
        ("campaign", "7"),
        ("venue", "8"),
        ("beacon", "9"),
        ("uuid", "f7826da6-4fa2-4e98-8024-bc5b71e0893e"),
        ("major", "1"),
        ("minor", "2"),
        ("proximity", "near"),
        ("udid", "phone 1&2"),
        ("detected_at", "2026-11-20T10:00:00+0000"),
    ]
    assert "content-type" not in headers(request)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://e.org/a?x=1#part", "https://e.org/a?x=1&k=v"),
        ("https://e.org", "https://e.org?k=v"),
        ("https://e.org/%C3%A9?q=%26", "https://e.org/%C3%A9?q=%26&k=v"),
    ],
)
def test_the_url_keeps_its_query(url: str, expected: str) -> None:
    assert built(url=url, place=ParameterPlace.QUERY, parameters=(("k", "v"),)).url == expected


def test_every_header_of_the_request_is_reserved() -> None:
    names = headers(built(secret="secret")).keys() - {"accept"}
    assert names <= RESERVED_HEADERS


def test_every_name_of_the_query_is_reserved() -> None:
    get_call = replace(call(method=HttpMethod.GET), document=document(ID, "x", id_connector=77))
    names = {name for name, _ in query(build_request(get_call, agent="a", now=0.0))}
    assert names | {"geofence", "nfc", "qrcode"} == RESERVED_IN_QUERY


def test_parameters_as_headers() -> None:
    request = built(parameters=PARAMETERS)
    assert headers(request) | {"x-token": "abc", "lang": "fr é"} == headers(request)
    assert query(request) == []


@pytest.mark.parametrize("method", list(HttpMethod))
def test_parameters_in_the_query_come_last(method: HttpMethod) -> None:
    parameters = (("a&b=c", "1&2=3 +%#é手"), *PARAMETERS)
    request = built(method=method, place=ParameterPlace.QUERY, parameters=parameters)
    assert query(request)[-len(parameters) :] == list(parameters)
    assert not {"x-token", "lang"} & headers(request).keys()


def test_the_secret_signs_and_does_not_go_out() -> None:
    request = built(secret="my secret")
    names = headers(request)
    assert (names["webhook-id"], names["webhook-timestamp"]) == (ID, "1700000000")
    assert names["webhook-signature"].startswith("v1,")
    shown = repr(call(parameters=PARAMETERS, secret="my secret")) + str(names)
    assert "abc" not in shown
    assert "my secret" not in shown


# From the specification's reference libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_published_vector() -> None:
    headers = signature_headers(secret=SECRET, id_=MESSAGE_ID, timestamp=1614265330.9, body=BODY)
    assert headers == [
        ("webhook-id", MESSAGE_ID),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", SIGNATURE),
    ]


@pytest.mark.parametrize("secret", ["c2VjcmV0", "plain é", "whsec_not base64!"])
def test_other_secrets_are_used_as_text(secret: str) -> None:
    (*_, (_, signature)) = signature_headers(secret=secret, id_="a", timestamp=1, body=b"")
    digest = hmac.digest(secret.encode(), b"a.1.", "sha256")
    assert signature == f"v1,{base64.b64encode(digest).decode()}"

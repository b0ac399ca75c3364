"""Shows a request and a reply to people: clipped, with the secrets masked."""

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from urllib.parse import quote, quote_plus

from connectors.call import Reply
from connectors.model import Call, Content, Declined
from connectors.reports import Pairs, ReplyReport, RequestReport
from connectors.request import Request, build_request, usable_parameters

MASK = "*****"
_SHORTEST_SECRET = 4  # masking a shorter value would mask half of the text
_LONGEST_BODY = 4000
_LONGEST_LINE = 2000
_MOST_HEADERS = 100
_SIGNATURE = "webhook-signature"
_SAFE = "/?:@!$'()*,;"


def show_request(call: Call, *, agent: str, now: float) -> RequestReport:
    """The request, with the parameters' values and the signature masked."""
    masked = tuple((name, MASK) for name, _ in call.endpoint.parameters)
    endpoint = replace(call.endpoint, parameters=masked)
    request = build_request(replace(call, endpoint=endpoint), agent=agent, now=now)
    headers = [(name.decode(), value.decode()) for name, value in request.headers]
    used = {name for name, _ in usable_parameters(call)}
    return RequestReport(
        method=request.method,
        url=_clipped(request.url, _LONGEST_LINE),
        headers=_headers((name, MASK if name == _SIGNATURE else v) for name, v in headers),
        body=_clipped(_body(request.body), _LONGEST_BODY),
        left_out=tuple(sorted({name for name, _ in call.endpoint.parameters} - used)),
    )


def show_reply(reply: Reply, secrets: Collection[str]) -> ReplyReport:
    """The reply. Secrets that it repeats are masked."""
    headers = ((name, masked(value, secrets)) for name, value in reply.headers.items())
    return ReplyReport(
        status=reply.status,
        headers=_headers(headers),
        body=_clipped(masked(_body(reply.body), secrets), _LONGEST_BODY),
    )


def secrets_of(call: Call, request: Request) -> list[str]:
    """The values to mask, as plain text, in JSON and in urls; the longest first."""
    plain = [value for _, value in call.endpoint.parameters]
    plain += [call.endpoint.secret or ""]
    plain += [value.decode() for name, value in request.headers if name == _SIGNATURE.encode()]
    written = {json.dumps(each, ensure_ascii=False)[1:-1] for each in plain}
    in_url = {
        form for each in plain for form in (quote(each), quote_plus(each), quote(each, _SAFE))
    }
    return sorted({*plain, *written, *in_url}, key=len, reverse=True)


def masked(text: str, secrets: Collection[str]) -> str:
    """The text with the secrets replaced by MASK."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return text


def show_content(content: Content, secrets: Collection[str]) -> Content:
    """The content of the notification."""

    def shown(text: str | None) -> str | None:
        return None if text is None else _clipped(masked(_encodable(text), secrets), _LONGEST_BODY)

    return Content(
        format=content.format,
        content=shown(content.content) or "",
        title=shown(content.title),
        push=shown(content.push),
    )


def request_lines(request: RequestReport) -> Iterator[str]:
    """The lines of the request for a terminal."""
    yield f"{request.method} {request.url}"
    yield from _message(request.headers, request.body)
    if request.left_out:
        yield ""
        yield f"(left out, because the request itself sets these: {', '.join(request.left_out)})"


def reply_lines(reply: ReplyReport) -> Iterator[str]:
    """The lines of the reply for a terminal."""
    yield f"status {reply.status}"
    yield from _message(reply.headers, reply.body)


def result_lines(result: Content | Declined) -> Iterator[str]:
    """The lines of the result for a terminal."""
    if isinstance(result, Declined):
        yield "no notification: the service declines"
        return
    yield "a notification"
    yield f"  title    {_or_campaigns(result.title)}"
    yield f"  push     {_or_campaigns(result.push)}"
    yield f"  {result.format:8} {result.content[:200]}"


def _message(headers: Pairs, body: str) -> Iterator[str]:
    yield from (f"{name}: {value}" for name, value in headers)
    if body:
        yield ""
        yield from body.splitlines()


def _or_campaigns(text: str | None) -> str:
    return "(the campaign's)" if text is None else text


def _headers(pairs: Iterator[tuple[str, str]]) -> Pairs:
    first = [pair for _, pair in zip(range(_MOST_HEADERS), pairs, strict=False)]
    return tuple((_clipped(n, _LONGEST_LINE), _clipped(v, _LONGEST_LINE)) for n, v in first)


def _body(raw: bytes) -> str:
    """The body as text, JSON indented. Of bytes that are not text only the number is shown."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"({len(raw)} bytes that are not text)"
    try:
        return _encodable(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        # Not JSON: shown as it is.
        return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)


def _encodable(text: str) -> str:
    """The text without lone surrogates, which JSON may contain and UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def _clipped(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n... ({len(text) - longest} more characters)"

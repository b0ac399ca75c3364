"""A call and its reply as a person would want to read them, without their secrets."""

import json
from collections.abc import Iterator
from dataclasses import replace

from connectors.call import Reply
from connectors.model import Call, Content, Declined
from connectors.request import Request, build_request, usable_parameters

MASK = "*****"
_SHORTEST_SECRET = 4  # a shorter value says nothing, and stands everywhere
_LONGEST_BODY = 4000


def show_request(call: Call, *, agent: str, now: float) -> Iterator[str]:
    """The lines of the request. Values of parameters are masked, and so is the signature."""
    masked = tuple((name, MASK) for name, _ in call.endpoint.parameters)
    endpoint = replace(call.endpoint, parameters=masked)
    request = build_request(replace(call, endpoint=endpoint), agent=agent, now=now)
    yield f"{request.method} {request.url}"
    for name, value in request.headers:
        yield f"{name.decode()}: {MASK if name == b'webhook-signature' else value.decode()}"
    if request.body:
        yield ""
        yield from _body(request.body)
    left_out = sorted({name for name, _ in call.endpoint.parameters} - _names(call))
    if left_out:
        yield ""
        yield f"(left out, for the request says these itself: {', '.join(left_out)})"


def show_reply(call: Call, request: Request, reply: Reply) -> Iterator[str]:
    """The lines of the reply; secrets that it repeats are masked."""
    lines = [f"status {reply.status}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    if reply.body:
        lines += ["", *_body(reply.body)]
    secrets = [value for _, value in call.endpoint.parameters]
    secrets += [call.endpoint.secret or ""]
    secrets += [value.decode() for name, value in request.headers if name == b"webhook-signature"]
    for line in lines:
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET:
                line = line.replace(secret, MASK)
        yield line


def show_result(result: Content | Declined) -> Iterator[str]:
    """What the reply leads to."""
    if isinstance(result, Declined):
        yield "no notification: the service declines"
        return
    yield "a notification"
    yield f"  title    {_or_campaigns(result.title)}"
    yield f"  push     {_or_campaigns(result.push)}"
    yield f"  {result.format:8} {result.content[:200]}"


def _names(call: Call) -> set[str]:
    return {name for name, _ in usable_parameters(call)}


def _or_campaigns(text: str | None) -> str:
    return "(the campaign's)" if text is None else text


def _body(raw: bytes) -> Iterator[str]:
    """JSON is laid out; what is neither that nor text is only measured."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        yield f"({len(raw)} bytes that are no text)"
        return
    try:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        # Shown as it is.
        text = "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
    yield from text[:_LONGEST_BODY].splitlines()
    if len(text) > _LONGEST_BODY:
        yield f"... ({len(text) - _LONGEST_BODY} more characters)"

"""Describes an operation in the document: its request, its answers and its errors."""

import re
from typing import Any

from api.answers import AuthenticationErrorAnswer, ErrorAnswer
from catalog.fields.base import Fields

# The reason of a refusal by status, and an example of the message.
_REFUSALS = {
    400: (
        "The request is not accepted; `fields` names each bad field and what it accepts.",
        "not accepted: name",
    ),
    401: ("No session: a header is missing, or the session has ended.", "no session"),
    403: ("The account's permission is too low.", "needs level 2 in the permission area campaign"),
    404: ("No such record in the account's company.", "no such venue"),
    408: ("The body took too long to arrive.", "the body took too long"),
    413: ("The body is too large.", "the body is larger than 1048576 bytes"),
    415: ("The body is not application/json.", "the body must be application/json in UTF-8"),
    429: (
        "Too many attempts to sign in; `retry-after` says how many seconds to wait.",
        "too many attempts to sign in",
    ),
    503: (
        "Not now: the database does not answer, or there are too many requests.",
        "the database does not answer",
    ),
}
TOO_OFTEN = {429: _REFUSALS[429]}
_WITH_BODY = (400, 408, 413, 415)


def operation(
    summary: str,
    answers: Any,
    *,
    body: type[Fields] | None = None,
    status: int = 200,
    also: dict[int, tuple[str, str]] | None = None,
    signing_in: bool = False,
    own: bool = False,
    csv: bool = False,
) -> dict[str, Any]:
    """The keywords of a route.

    `answers` is the model of the answer, or a list of it; `body` is the model of the request;
    `also` has further errors, in the form of _REFUSALS. `signing_in` marks an operation without a
    session, `own` one that needs no permission level; `csv` adds CSV as a second form of the
    answer.
    """
    refusals = _REFUSALS | (also or {})
    statuses = {400, 503, *(also or ())}
    if not signing_in:
        statuses |= {401} if own else {401, 403, 404}
    if body is not None:
        statuses |= set(_WITH_BODY)
    responses: dict[int, Any] = {status: {"description": "Success."}}
    if csv:
        responses[status]["content"] = {"text/csv": {"schema": {"type": "string"}}}
    for each in sorted(statuses):
        responses[each] = _refusal(each, *refusals[each], signing_in)
    extra: dict[str, Any] = {"security": []} if signing_in else {}
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
        content = {"application/json": {"schema": schema}}
        extra["requestBody"] = {"required": True, "content": content}
    return {
        "summary": summary,
        # Generated clients use the operation's id as a function's name.
        "operation_id": re.sub(r"[^a-z]+", "_", summary.lower()),
        "status_code": status,
        "response_model": answers,
        "responses": responses,
        "openapi_extra": extra,
    }


def _refusal(status: int, reason: str, message: str, signing_in: bool) -> dict[str, Any]:
    """The description of an error, with an example."""
    text = "error_message" if signing_in else "message"
    example: dict[str, Any] = {"status": "error", text: message, "code": status}
    if status == 400:
        example["fields"] = {"name": "required"}
    return {
        "description": reason,
        "model": AuthenticationErrorAnswer if signing_in else ErrorAnswer,
        "content": {"application/json": {"example": example}},
    }

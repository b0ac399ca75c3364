"""Every error of the interface: what its answer says, and what a client can do about it.

400  bad_fields           correct the named fields
401  no_session           sign in
403  forbidden            request the permission
404  not_found            the record was deleted, or is another company's
409, 413, 415, 408        as the message says
429, 503  unavailable     try again after `retry-after` seconds
"""

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """A request that is answered with an error.

    `fields` names what is wrong by place, as `tags[0].name`, each with what is accepted.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.body: dict[str, Any] = {"status": "error", "message": message, "code": status}
        if fields:
            self.body["fields"] = dict(fields)


def no_session(**fields: str) -> ApiError:
    """There is no valid session: 401. `fields` are the missing headers."""
    return ApiError(401, "no session", fields=fields)


def as_of_signing_in(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an error of signing in, in which the text is `error_message`."""
    return {"error_message" if name == "message" else name: value for name, value in body.items()}


def forbidden(area: str, level: int) -> ApiError:
    """The account's level in an area is too low."""
    return ApiError(403, f"needs level {level} in the permission area {area}")


def not_found(what: str) -> ApiError:
    """The record does not exist or is another company's; the answer is the same."""
    return ApiError(404, f"no such {what}")


def bad_fields(fields: Mapping[str, str]) -> ApiError:
    """Some fields are missing or not accepted."""
    return ApiError(400, f"not accepted: {', '.join(fields)}", fields=fields)


def unavailable(message: str, *, seconds: int = 1) -> ApiError:
    """The service cannot answer now; the client may try again in `seconds`."""
    return ApiError(503, message, headers={"retry-after": str(seconds)})

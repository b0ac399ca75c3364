"""Errors as the interface tells them: `status`, a text, and the HTTP status again as `code`."""

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
    """No valid session: 401, worded by the interface; `fields` are the headers it lacks."""
    return ApiError(401, "no session", fields=fields)


def as_of_signing_in(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an error as signing in tells it: there the text is `error_message`."""
    return {"error_message" if name == "message" else name: told for name, told in body.items()}


def forbidden(area: str, level: int) -> ApiError:
    """The account's level in an area is too low."""
    return ApiError(403, f"needs level {level} in the permission area {area}")


def not_found(what: str) -> ApiError:
    """No such record, or another company's: there is no telling which."""
    return ApiError(404, f"no such {what}")


def bad_fields(fields: Mapping[str, str]) -> ApiError:
    """Fields that are missing or not accepted."""
    return ApiError(400, f"not accepted: {', '.join(fields)}", fields=fields)


def unavailable(message: str, *, seconds: int = 1) -> ApiError:
    """The service cannot do it now; `seconds` from now it may."""
    return ApiError(503, message, headers={"retry-after": str(seconds)})

"""Describes the state of each role, and of the company's service, in one sentence each."""

from typing import Any, NamedTuple

from starlette.responses import Response

from api.console.context import PageContext
from api.console.translations import Translations

_KINDS = {"up_to_date": "good", "behind": "waiting", "starting": "waiting"}
_BREAKERS = {"closed": "good", "half_open": "waiting"}
_MINUTES_FROM, _HOURS_FROM = 120, 7200


class StateSentence(NamedTuple):
    """A sentence and its style: good, waiting or off."""

    kind: str
    text: str


async def show(context: PageContext) -> Response:
    """Show a sentence for each role, and one for the company's service if it has one."""
    found = await context.interface.get("/realtime/roles")
    sentences = [role_sentence(each, context.texts) for each in found]
    if context.may_read("connector"):
        sentences += await _of_service(context)
    return context.page("part_roles.html", sentences=sentences)


async def _of_service(context: PageContext) -> list[StateSentence]:
    if not (await context.interface.call("GET", "/connector")).is_success:
        return []
    reply = await context.interface.call("GET", "/connector/calls")
    if not reply.is_success:
        return [StateSentence("off", reply.message)]
    breaker = reply.body["breaker"]
    if breaker["state"] == "closed" and not breaker["calls"]:
        return []
    text = context.texts(f"service_{breaker['state']}", seconds=round(breaker["seconds"]))
    return [StateSentence(_BREAKERS.get(breaker["state"], "off"), text)]


def role_sentence(found: dict[str, Any], texts: Translations) -> StateSentence:
    """A sentence such as "The recorder is 12 s behind"."""
    state, seconds = found["state"], found["seconds"]
    kind = _KINDS.get(state, "off")
    if state == "silent":
        key = f"{'never' if seconds is None else 'silent'}_{found['role']}"
        return StateSentence(kind, texts(key, time=_time(seconds or 0)))
    servers = ", ".join(texts.get(f"waits_{name}") for name in found["waits_for"])
    values = {"role": texts(f"role_{found['role']}"), "servers": servers}
    return StateSentence(kind, texts(f"role_{state}", time=_time(seconds or 0), **values))


def _time(seconds: int) -> str:
    """The time in units that all four languages abbreviate alike."""
    if seconds < _MINUTES_FROM:
        return f"{seconds} s"
    if seconds < _HOURS_FROM:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"


PAGES = (("GET", "/parts/roles", show),)

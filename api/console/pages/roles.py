"""Whether roles keep up and calls go out, in a sentence each."""

from typing import Any, NamedTuple

from starlette.responses import Response

from api.console.visit import Visit
from api.console.words import PageWords

_KINDS = {"up_to_date": "good", "behind": "waiting", "starting": "waiting"}
_BREAKERS = {"closed": "good", "half_open": "waiting"}
_MINUTES_FROM, _HOURS_FROM = 120, 7200


class StateSentence(NamedTuple):
    """A sentence, and how it is coloured."""

    kind: str
    text: str


async def show(visit: Visit) -> Response:
    """One sentence a role, and one about the company's own service if it has one."""
    found = await visit.interface.read("/realtime/roles")
    sentences = [role_sentence(each, visit.words) for each in found]
    if visit.may_read("connector"):
        sentences += await _of_service(visit)
    return visit.page("part_roles.html", sentences=sentences)


async def _of_service(visit: Visit) -> list[StateSentence]:
    if not (await visit.interface.call("GET", "/connector")).is_good:
        return []
    reply = await visit.interface.call("GET", "/connector/calls")
    if not reply.is_good:
        return [StateSentence("off", reply.message)]
    breaker = reply.body["breaker"]
    if breaker["state"] == "closed" and not breaker["calls"]:
        return []
    text = visit.words(f"service_{breaker['state']}", seconds=round(breaker["seconds"]))
    return [StateSentence(_BREAKERS.get(breaker["state"], "off"), text)]


def role_sentence(found: dict[str, Any], words: PageWords) -> StateSentence:
    """As "The recorder is 12 s behind"."""
    state, seconds = found["state"], found["seconds"]
    kind = _KINDS.get(state, "off")
    if state == "silent":
        key = f"{'never' if seconds is None else 'silent'}_{found['role']}"
        return StateSentence(kind, words(key, time=_time(seconds or 0)))
    servers = ", ".join(words.get(f"waits_{name}") for name in found["waits_for"])
    values = {"role": words(f"role_{found['role']}"), "servers": servers}
    return StateSentence(kind, words(f"role_{state}", time=_time(seconds or 0), **values))


def _time(seconds: int) -> str:
    """In the units that all four languages write alike."""
    if seconds < _MINUTES_FROM:
        return f"{seconds} s"
    if seconds < _HOURS_FROM:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"


PAGES = (("GET", "/parts/roles", show),)

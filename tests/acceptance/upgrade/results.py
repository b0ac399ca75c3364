"""The visible results of the product: published messages, and whether SQL is exact."""

import json
from collections import Counter
from typing import Any

from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet


async def sent(topics: TopicSet) -> dict[str, set[str]]:
    """The campaigns that each device has received."""
    found: dict[str, set[str]] = {}
    for message in await _notifications(topics):
        found.setdefault(message["device"]["udid"], set()).add(message["campaign"]["name"])
    return found


async def counted(topics: TopicSet) -> Counter[str]:
    """The number of distinct notifications of each device."""
    ids = {(m["id"], m["device"]["udid"]) for m in await _notifications(topics)}
    return Counter(udid for _, udid in ids)


async def _notifications(topics: TopicSet) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in await topics.read("notifications")]


async def is_exact(rig: Rig) -> bool:
    """Whether `proximity verify` finds no difference."""
    verify = rig.start("verify")
    return await verify.ended() == 0

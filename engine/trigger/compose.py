"""The step `compose`: turns grants into their messages, notifications and calls."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from engine.redis.devices import DeviceKey, DeviceLookup
from engine.trigger.grants import Grant, GrantMessage
from engine.trigger.message_writer import MessageWriter


class Composer:
    """Looks up the devices of grants, and has their messages written. `clock` in epoch seconds."""

    def __init__(
        self,
        *,
        writer: MessageWriter,
        devices: DeviceLookup,
        turn_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._devices = devices
        self._turn_bytes = turn_bytes
        self._clock = clock

    async def compose_next(self, grants: deque[Grant], most: int) -> list[GrantMessage]:
        """Compose the messages of the next grants: up to the bytes of a turn, at least one message.

        At most `most` grants are taken.
        """
        keys = _devices_to_look_up(islice(grants, most), self._turn_bytes)
        known = await self._devices.find(keys) if keys else {}
        now, room, at_once = self._clock(), self._turn_bytes, self._writer.messages_at_once
        messages = list[GrantMessage]()
        while grants and room > 0 and len(messages) < most:
            fewer = min(at_once, most - len(messages))
            written, size = self._writer.write(grants, known, now, fewer, room)
            messages += written
            room -= size
            if len(written) == at_once:
                await asyncio.sleep(0)
        return messages


def _devices_to_look_up(grants: Iterable[Grant], most_bytes: int) -> set[DeviceKey]:
    """The devices of the next notifications, up to so many bytes of content; calls need none."""
    keys: set[DeviceKey] = set()
    size = 0
    for grant in grants:
        if grant.is_call:
            continue
        keys.add(grant.device)
        size += len(grant.campaign.content or "")
        if size > most_bytes:
            break
    return keys

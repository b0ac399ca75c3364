"""This version continues with the messages, the Redis and the database of an earlier one."""

import json
import os
from collections import Counter

import pytest
from redis import Redis

from tests.acceptance.rig import Command, Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.upgrade.before import Before, continuing
from tests.acceptance.upgrade.record import EARLIER, LATER, REDIS, WAITING
from tests.acceptance.upgrade.release import FIRST, SECOND, Release
from tests.acceptance.upgrade.results import counted, is_exact, sent
from tests.acceptance.upgrade.scene import CONNECTOR, WELCOME, Devices, reply
from tests.servers.http_service import serving
from tests.servers.waiting import eventually

DEADLINE = 60.0
BOTH = frozenset([WELCOME, CONNECTOR])
full = pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="half a minute each")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("release", [FIRST, pytest.param(SECOND, marks=full)], ids=lambda r: r.name)
async def test_nothing_that_waited_is_lost_and_figures_stay_exact(
    release: Release,
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    redis_url: str,
    postgres_url: str,
) -> None:
    servers = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
        "REDIS_URL": redis_url,
        "DATABASE_URL": postgres_url,
    }
    async with serving(reply()) as service:
        await Before(release, port=service.port).put(servers, topic_prefix, f"{topic_prefix}g.")
        left = await sent(topics)
        assert left == dict.fromkeys(EARLIER, BOTH) | dict.fromkeys(WAITING, frozenset([WELCOME]))
        continuing(rig, servers)
        await printed(rig.start("migrate"))
        engine = rig.start("run")
        await engine.until_ready()
        everybody = dict.fromkeys([*EARLIER, *WAITING, *LATER, "new"], BOTH)
        await Devices(kafka_bootstrap, topic_prefix).detect("new")

        async def all_have_both() -> bool:
            return await sent(topics) == everybody

        await eventually(all_have_both, deadline=DEADLINE, what="who waited has both campaigns")
        await eventually(
            lambda: is_exact(rig), deadline=DEADLINE, what="verify finds no difference"
        )
        await engine.stop()
        # Claims of the earlier form are not read (decision 0085): one device has got both again.
        again = {udid: n for udid, n in (await counted(topics)).items() if n != len(BOTH)}
        assert again == {"device 0": 4}
        requested = Counter(received.json["device"]["udid"] for received in service.received)
        assert requested == Counter([*WAITING, *LATER, "new"])
    assert _forever(redis_url) == []
    letters = [json.loads(line) for line in (await printed(_letters(rig))).splitlines()]
    assert [(letter["key"], letter["reason"]) for letter in letters] == [
        (f"junk {number}", letters[0]["reason"]) for number in (1, 2, 3)
    ]


async def printed(command: Command) -> str:
    """The output of a command, whose exit status must be 0."""
    assert await command.ended() == 0, command.output
    return command.output


def _letters(rig: Rig) -> Command:
    return rig.start("dead-letters", "list", "--json")


def _forever(url: str) -> list[str]:
    """Claims without a time to live."""
    with Redis.from_url(url, decode_responses=True) as client:
        keys = list(client.scan_iter(f"{REDIS}claim*"))
        return [key for key in keys if client.ttl(key) < 0]

"""What the processes open in PostgreSQL, as the plan in docs/operations.md adds it up."""

import asyncio

import asyncpg
import httpx

from catalog.database import open_database
from tests.api.process import ApiProcess, make_account
from tests.system.rig import Rig
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.world import small_world

POOL = 2
# Those of the pools: they stay open after use.
OPEN = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'proximity'
"""


async def test_a_process_opens_at_most_its_pool(
    rig: Rig, topics: TopicSet, redis_url: str, postgres_url: str
) -> None:
    """Each role and the interface under load; together they open all that they may."""
    rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    rig.environment |= {"DATABASE_POOL": str(POOL), "SECRET_KEY": "a passphrase of the test"}
    scene = await Scene(rig, topics, small_world()).begin()
    database = open_database(postgres_url)
    await make_account(database)
    await database.close()
    roles = [rig.start("run", "--role", role) for role in ("trigger", "connector", "recorder")]
    api = await ApiProcess(rig).until_ready()
    for role in roles:
        await role.until_ready()
    headers, watcher = await api.sign_in(), await asyncpg.connect(postgres_url)
    async with (
        scene.load(seed=4, rate=300),
        httpx.AsyncClient(base_url=api.url, headers=headers, timeout=30) as client,
    ):
        for _ in range(5):
            answers = await asyncio.gather(*(client.get("/v2/region") for _ in range(20)))
            assert {each.status_code for each in answers} == {200}
            assert await watcher.fetchval(OPEN) <= POOL * (len(roles) + 1)
    await topics.until_done()
    assert len(roles) < await watcher.fetchval(OPEN) <= POOL * (len(roles) + 1)
    await watcher.close()

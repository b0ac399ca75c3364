"""`proximity connector test` and `rekey` against a service under the test's control."""

import asyncio
import json

from sqlalchemy import func, select

from catalog.database import open_database
from catalog.models import Outbox
from tests.servers.http_service import HttpService, content, serving
from tests.servers.proximity import Command, Rig
from tests.servers.schema import make_schema

KEY, NEW = "a passphrase of some length", "another passphrase entirely"
TOKEN, SECRET = "the-secret-token", "whsec_c2VjcmV0LXNlY3JldA=="


async def load(rig: Rig, url: str, service: HttpService) -> None:
    """Make a company whose connector is the service."""
    await make_schema(url)
    rig.settings = {"DATABASE_URL": url, "REDIS_URL": "redis://127.0.0.1:1/0", "SECRET_KEY": KEY}
    rig.settings["CONNECTOR_ALLOW_NETWORKS"] = "127.0.0.0/8"
    connector = {
        "name": "content",
        "url": service.url("/content"),
        "method": "POST",
        "auth": "header",
        "parameters": [{"key": "x-token", "value": TOKEN}],
        "secret": SECRET,
    }
    document = {"companies": [{"name": "Museum", "connector": connector}]}
    done = rig("catalog", "load", "-", given=json.dumps(document).encode())
    assert done.returncode == 0, done.stderr


async def outbox(url: str) -> int:
    """The number of its rows."""
    database = open_database(url)
    async with database.read() as session:
        found = await session.scalar(select(func.count()).select_from(Outbox))
    await database.close()
    return found or 0


async def test_after_rekey_the_old_key_is_not_needed(rig: Rig, sqlite_url: str) -> None:
    async with serving(content()) as service:
        await load(rig, sqlite_url, service)

        async def run(key: str, *words: str) -> Command:
            rig.settings["SECRET_KEY"] = key
            return await asyncio.to_thread(rig, "connector", *words)

        lost = await run(NEW, "rekey")
        assert lost.returncode == 1
        assert lost.stderr.startswith("proximity: 1 connectors are encrypted with none of the keys")
        assert lost.stderr.rstrip().endswith("their companies: Museum")
        before = await outbox(sqlite_url)
        done = await run(f"{NEW},{KEY}", "rekey")
        assert (done.returncode, done.stdout) == (0, "1 connectors encrypted anew\n")
        assert await outbox(sqlite_url) > before  # the index gets the new tokens
        shown = await run(NEW, "test", "Museum")
    (received,) = service.received
    assert (shown.returncode, shown.stderr) == (0, "")
    assert received.headers["x-token"] == TOKEN
    assert "x-token: *****" in shown.stdout
    assert "webhook-signature: *****" in shown.stdout
    assert shown.stdout.rstrip().endswith("template <p>hello</p>")
    assert TOKEN not in shown.stdout
    assert SECRET not in shown.stdout

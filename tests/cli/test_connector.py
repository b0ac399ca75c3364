"""`proximity connector test` against a service under the test's control."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from catalog.database import open_database
from catalog.models import Connector, Outbox
from catalog.secrets import open_cipher
from engine.cli.catalog import write_catalog
from engine.process.settings_sources import load_settings
from tests.cli.proximity import Proximity
from tests.servers.http_service import Answer, content, serving
from tests.servers.schema import make_schema

KEY = "a passphrase of some length"
TOKEN, SECRET = "the-secret-token", "whsec_c2VjcmV0LXNlY3JldA=="


class Command:
    """The command on a migrated catalog; `load` writes one."""

    def __init__(self, directory: Path, url: str) -> None:
        self._settings = load_settings(None, database_url=url, secret_key=KEY)
        self.key = KEY
        self._directory = directory
        self._url = url

    async def load(self, raw: bytes) -> None:
        """Write a catalog."""
        await make_schema(self._url)
        database = open_database(self._url)
        try:
            await write_catalog(self._settings, database, raw)
        finally:
            await database.close()

    async def store(self, url: str) -> None:
        """As an earlier version would have stored it: any url, and a parameter that is reserved."""
        listed = [{"key": "x-token", "value": TOKEN}, {"key": "Host", "value": "elsewhere"}]
        token = open_cipher(KEY).encrypt(json.dumps(listed))
        database = open_database(self._url)
        try:
            async with database.write.begin() as session:
                stored = (await session.scalars(select(Connector))).one()
                stored.url, stored.parameters = url, token
        finally:
            await database.close()

    async def __call__(
        self, *arguments: str, what: str = "test"
    ) -> "subprocess.CompletedProcess[str]":
        """Run `proximity connector test`, or another of the group."""
        command = Proximity(
            self._directory,
            "127.0.0.1:1",
            "unused.",
            PROXIMITY_DATABASE_URL=self._url,
            PROXIMITY_SECRET_KEY=self.key,
            PROXIMITY_CONNECTOR_ALLOW_NETWORKS="127.0.0.0/8",
        )
        return await asyncio.to_thread(command, "connector", what, *arguments)

    async def changes(self) -> int:
        """The number of rows in the outbox."""
        database = open_database(self._url)
        try:
            async with database.write.begin() as session:
                return await session.scalar(select(func.count()).select_from(Outbox)) or 0
        finally:
            await database.close()


@pytest.fixture
def command(tmp_path: Path, sqlite_url: str) -> Command:
    return Command(tmp_path, sqlite_url)


def document(url: str, **fields: Any) -> bytes:
    connector = {
        "name": "content",
        "url": url,
        "method": "POST",
        "auth": "header",
        "parameters": [{"key": "x-token", "value": TOKEN}],
        "secret": SECRET,
        **fields,
    }
    companies = [{"name": "Museum", "connector": connector}, {"name": "Library"}]
    return json.dumps({"companies": companies}).encode()


async def run(command: Command, answer: Answer, *arguments: str, **fields: Any) -> Any:
    """Load the catalog, then test the connector with a service that gives this answer."""
    async with serving(answer) as service:
        url = fields.pop("url", service.url("/content"))
        await command.load(document("https://service.invalid/", **fields))
        await command.store(url)
        return await command(*arguments), service.received


async def test_content(command: Command) -> None:
    done, received = await run(command, content(), "Museum")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(received) == 1
    assert received[0].headers["x-token"] == TOKEN
    assert received[0].json["device"]["test"] is True
    assert f"POST http://127.0.0.1:{received[0].headers['host'][10:]}/content" in done.stdout
    assert "x-token: *****" in done.stdout
    assert "webhook-signature: *****" in done.stdout
    assert "left out, because the request itself sets these: Host" in done.stdout
    assert "status 200" in done.stdout
    assert done.stdout.rstrip().endswith("template <p>hello</p>")
    assert TOKEN not in done.stdout
    assert SECRET not in done.stdout


NEW = "another passphrase entirely"


async def test_after_rekey_the_old_key_is_not_needed(command: Command) -> None:
    async with serving(content()) as service:
        await command.load(document("https://service.invalid/"))
        await command.store(service.url("/content"))
        before = await command.changes()
        command.key = f"{NEW},{KEY}"
        done = await command(what="rekey")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "1 connectors encrypted anew\n"
        assert await command.changes() > before  # the index gets the new tokens
        command.key = NEW
        done = await command("Museum")
        assert (done.returncode, done.stderr) == (0, "")
        assert service.received[0].headers["x-token"] == TOKEN
        assert "webhook-signature" in service.received[0].headers


async def test_rekey_names_the_companies_it_cannot_read(command: Command) -> None:
    await command.load(document("https://service.invalid/"))
    command.key = NEW
    done = await command(what="rekey")
    assert done.returncode == 1
    assert done.stderr.startswith("proximity: 1 connectors are encrypted with none of the keys")
    assert done.stderr.rstrip().endswith("their companies: Museum")
    assert TOKEN not in done.stdout + done.stderr

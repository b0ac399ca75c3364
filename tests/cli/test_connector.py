"""`proximity connector test` against a service under the test's control."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import func, select

from catalog.database import open_database
from catalog.models import Connector, Outbox
from catalog.secrets import open_cipher
from engine.cli.catalog import write_catalog
from engine.process.settings_sources import load_settings
from tests.cli.proximity import Proximity
from tests.servers.http_service import content, serving
from tests.servers.schema import make_schema

KEY = "a passphrase of some length"
TOKEN, SECRET = "the-secret-token", "whsec_c2VjcmV0LXNlY3JldA=="


class Command(Proximity):
    """The command on a migrated catalog; `load` writes one."""

    def __init__(self, directory: Path, url: str) -> None:
        more = {"PROXIMITY_DATABASE_URL": url, "PROXIMITY_CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
        super().__init__(directory, "127.0.0.1:1", "unused.", **more)
        self.use_key(KEY)
        self._url = url

    def use_key(self, key: str) -> None:
        self._env["PROXIMITY_SECRET_KEY"] = key

    async def load(self, url: str) -> None:
        """Write a catalog whose connector has this url, as an earlier version would have stored it:
        any url, and a parameter that is reserved."""
        await make_schema(self._url)
        database = open_database(self._url)
        settings = load_settings(None, database_url=self._url, secret_key=KEY)
        listed = [{"key": "x-token", "value": TOKEN}, {"key": "Host", "value": "elsewhere"}]
        try:
            await write_catalog(settings, database, document("https://service.invalid/"))
            async with database.write.begin() as session:
                stored = (await session.scalars(select(Connector))).one()
                stored.url, stored.parameters = url, open_cipher(KEY).encrypt(json.dumps(listed))
        finally:
            await database.close()

    async def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return await asyncio.to_thread(self, "connector", *words)

    async def changes(self) -> int:
        """The number of rows in the outbox."""
        database = open_database(self._url)
        try:
            async with database.read() as session:
                return await session.scalar(select(func.count()).select_from(Outbox)) or 0
        finally:
            await database.close()


@pytest.fixture
def command(tmp_path: Path, sqlite_url: str) -> Command:
    return Command(tmp_path, sqlite_url)


def document(url: str) -> bytes:
    connector = {
        "name": "content",
        "url": url,
        "method": "POST",
        "auth": "header",
        "parameters": [{"key": "x-token", "value": TOKEN}],
        "secret": SECRET,
    }
    return json.dumps({"companies": [{"name": "Museum", "connector": connector}]}).encode()


async def test_one_call_is_shown_without_its_secrets(command: Command) -> None:
    async with serving(content()) as service:
        await command.load(service.url("/content"))
        done = await command.run("test", "Museum")
    (received,) = service.received
    assert (done.returncode, done.stderr) == (0, "")
    assert received.headers["x-token"] == TOKEN
    assert received.json["device"]["test"] is True
    assert f"POST {service.url('/content')}" in done.stdout
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
        await command.load(service.url("/content"))
        before = await command.changes()
        command.use_key(f"{NEW},{KEY}")
        done = await command.run("rekey")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "1 connectors encrypted anew\n"
        assert await command.changes() > before  # the index gets the new tokens
        command.use_key(NEW)
        assert (await command.run("test", "Museum")).returncode == 0
        assert service.received[0].headers["x-token"] == TOKEN


async def test_rekey_names_the_companies_it_cannot_read(command: Command) -> None:
    await command.load("https://service.invalid/")
    command.use_key(NEW)
    done = await command.run("rekey")
    assert done.returncode == 1
    assert done.stderr.startswith("proximity: 1 connectors are encrypted with none of the keys")
    assert done.stderr.rstrip().endswith("their companies: Museum")
    assert TOKEN not in done.stdout + done.stderr

"""A real PostgreSQL: what is committed survives our kills, not a power cut, so that it is quick."""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
from sqlalchemy import make_url

from tests.servers.process import ServerProcess, find_program

TEST_DATABASES = "proximity_test_"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
}


class PostgresServer(ServerProcess):
    """A PostgreSQL with one superuser, `proximity`, and no password."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, port)
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        self._initdb = find_program("initdb", beside=installed, package="postgresql")
        self._postgres = self._initdb.with_name("postgres")
        if os.geteuid() == 0:
            # It refuses to run as root; every package of it makes this user.
            self.user = "postgres"

    @property
    def admin_url(self) -> str:
        """postgresql://, the database in which the others are made."""
        return f"postgresql://proximity@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        if self.user is not None:
            shutil.chown(self.directory, self.user, self.user)
        options = ["--username=proximity", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [self._initdb, "--no-sync", *options, "--pgdata", self.directory / "data"],
            check=True,
            timeout=60,
            cwd=self.directory,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            stdout=subprocess.DEVNULL,
        )

    def command(self) -> Sequence[str | Path]:
        settings = [part for pair in _SETTINGS.items() for part in ("-c", "=".join(pair))]
        return [self._postgres, "-D", self.directory / "data", "-p", str(self.port), *settings]

    def answers(self) -> bool:
        try:
            execute(self.admin_url, "SELECT 1")
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        return True

    def stop(self) -> None:
        """Stop it; sessions that are open are ended."""
        if self._child is not None:
            self._child.stop(stop_signal=signal.SIGINT, deadline=self.stop_deadline)


def create_database(admin_url: str) -> str:
    """Make an empty database with a name of its own; return its URL."""
    name = f"{TEST_DATABASES}{secrets.token_hex(6)}"
    execute(admin_url, f'CREATE DATABASE "{name}"')
    return make_url(admin_url).set(database=name).render_as_string(hide_password=False)


def copy_over(url: str, template: str) -> None:
    """Put a copy of the database `template` in the place of the one at `url`, which is empty."""
    name = make_url(url).database
    admin_url = make_url(url).set(database="postgres").render_as_string(hide_password=False)
    copy = f'CREATE DATABASE "{name}" TEMPLATE "{template}"'
    execute(admin_url, f'DROP DATABASE "{name}"', copy)


def drop_database(admin_url: str, url: str) -> None:
    """Drop a database, whoever is connected to it."""
    execute(admin_url, f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')


def execute(url: str, *statements: str) -> None:
    """Run statements, each by itself. Raises PostgresError, OSError or TimeoutError.

    In a thread, for a loop may be running in this one.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _execute(url, statements)).result()


async def _execute(url: str, statements: Sequence[str]) -> None:
    connection = await asyncpg.connect(url, timeout=10, command_timeout=30)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close(timeout=10)

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
import trustme
from sqlalchemy import make_url

from tests.servers.process import ServerProcess, find_program

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
        program = self._initdb.with_name("postgres")
        settings = [part for pair in _SETTINGS.items() for part in ("-c", "=".join(pair))]
        return [program, "-D", self.directory / "data", "-p", str(self.port), *settings]

    def answers(self) -> bool:
        try:
            execute(self.admin_url, "SELECT 1")
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        return True

    def stop(self) -> None:
        """Stop it; sessions that are open are ended."""
        if self._child is not None and self._child.running:
            os.kill(self._child.pid, signal.SIGINT)
        super().stop()


class TlsPostgresServer(PostgresServer):
    """With a user that must come with TLS and a password; `authority` is the PEM file that verifies
    the server."""

    user_with_tls, password = "secured", "s3cret-of-the-database"

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, port)
        self.authority = directory.parent / f"{directory.name}-ca.pem"
        self._certificate = directory / "server.pem"

    def url(self, query: str) -> str:
        """For the user with TLS."""
        login = f"{self.user_with_tls}:{self.password}"
        return f"postgresql://{login}@localhost:{self.port}/postgres?{query}"

    def prepare(self) -> None:
        super().prepare()
        ca = trustme.CA()
        ca.cert_pem.write_to_path(self.authority)
        ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(self._certificate)
        self._certificate.chmod(0o600)
        if self.user is not None:
            shutil.chown(self._certificate, self.user, self.user)
        access = self.directory / "data" / "pg_hba.conf"
        name = self.user_with_tls
        ours = f"hostssl all {name} all scram-sha-256\nhost all {name} all reject\n"
        access.write_text(ours + access.read_text())

    def command(self) -> Sequence[str | Path]:
        tls = ("ssl=on", f"ssl_cert_file={self._certificate}", f"ssl_key_file={self._certificate}")
        return [*super().command(), *(part for each in tls for part in ("-c", each))]

    def start(self) -> "TlsPostgresServer":
        super().start()
        login = f"LOGIN SUPERUSER PASSWORD '{self.password}'"
        execute(self.admin_url, f"CREATE ROLE {self.user_with_tls} {login}")
        return self


def new_url(admin_url: str) -> str:
    """The URL of a database with a name of its own, which nobody has made."""
    named = make_url(admin_url).set(database=f"proximity_test_{secrets.token_hex(6)}")
    return named.render_as_string(hide_password=False)


def create_database(admin_url: str) -> str:
    """Make an empty database with a name of its own; return its URL."""
    url = new_url(admin_url)
    execute(admin_url, f'CREATE DATABASE "{make_url(url).database}"')
    return url


def drop_database(admin_url: str, url: str) -> None:
    """Drop a database, whoever is connected to it."""
    execute(admin_url, f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')


def execute(url: str, statement: str) -> None:
    """Run a statement, in a thread, for a loop may be running in this one.

    Raises PostgresError, OSError or TimeoutError.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _execute(url, statement)).result()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=10, command_timeout=30)
    try:
        await connection.execute(statement)
    finally:
        await connection.close(timeout=10)

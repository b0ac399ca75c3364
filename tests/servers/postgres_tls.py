"""A real PostgreSQL behind a private authority: TLS and a password, or nothing."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import trustme

from tests.servers.postgres import PostgresServer, execute

USER, PASSWORD = "secured", "s3cret-of-the-database"


class TlsPostgresServer(PostgresServer):
    """`url` is for the user that must come with TLS; `authority` is the PEM file that verifies."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, port)
        self.authority = directory.parent / f"{directory.name}-ca.pem"

    def url(self, query: str, *, host: str = "localhost", password: str = PASSWORD) -> str:
        return f"postgresql://{USER}:{password}@{host}:{self.port}/postgres?{query}"

    def prepare(self) -> None:
        super().prepare()
        ca = trustme.CA()
        ca.cert_pem.write_to_path(self.authority)
        ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(self._certificate)
        self._certificate.chmod(0o600)
        if self.user is not None:
            shutil.chown(self._certificate, self.user, self.user)
        access = self.directory / "data" / "pg_hba.conf"
        ours = f"hostssl all {USER} all scram-sha-256\nhost all {USER} all reject\n"
        access.write_text(ours + access.read_text())

    def command(self) -> Sequence[str | Path]:
        tls = ("ssl=on", f"ssl_cert_file={self._certificate}", f"ssl_key_file={self._certificate}")
        return [*super().command(), *(part for each in tls for part in ("-c", each))]

    def start(self) -> "TlsPostgresServer":
        super().start()
        role = f"CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}'"
        execute(self.admin_url, role)
        return self

    @property
    def _certificate(self) -> Path:
        return self.directory / "server.pem"

"""The servers of an installation; those that keep data on a disk may have a small one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

_REDIS_MEGABYTES, _POSTGRES_MEGABYTES = 64, 512
_PIECE = b"\0" * 65_536


class SmallDisk:
    """A file system of limited size in memory. Only root can mount one."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self._path = path
        self._filling = path / "filling"
        path.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755"]
        subprocess.run(["mount", *options, "tmpfs", path], check=True, timeout=10)

    @staticmethod
    def can_be_created() -> bool:
        """Whether this process may mount one."""
        return os.geteuid() == 0

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fill the disk within the context."""
        with self._filling.open("wb", buffering=0) as stream, suppress(OSError):
            while True:
                stream.write(_PIECE)
        try:
            yield
        finally:
            self._filling.unlink()

    def remove(self) -> None:
        """Unmount the disk; open files stay valid until they are closed."""
        subprocess.run(["umount", "--lazy", self._path], check=False, timeout=10)


class RedisOnSmallDisk(RedisServer):
    """A Redis whose append-only file is on `disk`."""

    disk: SmallDisk

    def prepare(self) -> None:
        self.disk = SmallDisk(self.directory / "disk", _REDIS_MEGABYTES)

    def options(self) -> dict[str, str]:
        return {"dir": str(self.directory / "disk")}


class PostgresOnSmallDisk(PostgresServer):
    """A PostgreSQL whose data are on `disk`."""

    disk: SmallDisk

    def prepare(self) -> None:
        # (PostgreSQL's own directory in it: the file that fills the disk is not PostgreSQL's.)
        self.disk = SmallDisk(self.directory / "disk", _POSTGRES_MEGABYTES)
        inner = self.directory / "disk" / "data"
        inner.mkdir(mode=0o700)
        (self.directory / "data").symlink_to(inner)
        if self.user is not None:
            subprocess.run(["chown", f"{self.user}:{self.user}", inner], check=True, timeout=10)
        super().prepare()

"""Kafka's classes as Java has them in memory: a broker starts in half of its processor time.

`python -m tests.servers.kafka.archive` makes the archive (and fetches the jars); without one the
tests do the same, more slowly.
"""

import os
import sys

from tests.servers.kafka.jars import jars_directory
from tests.servers.kafka.server import KafkaServer, archive_of
from tests.servers.missing import ServerMissingError
from tests.servers.process import started


class _ArchivingServer(KafkaServer):
    """Writes down at its end which classes it used."""

    def java_options(self) -> list[str]:
        return ["-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={self.directory / 'archive.jsa'}"]


def main() -> int:
    """Make the archive unless it is there, and say where."""
    try:
        target = archive_of(jars_directory())
        if not target.exists():
            with started(_ArchivingServer) as server:
                server.stop()
                written = server.directory / "archive.jsa"
                beside = target.with_name(f"{target.name}.{os.getpid()}")
                beside.write_bytes(written.read_bytes())
                beside.rename(target)
    except ServerMissingError as missing:
        print(missing, file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())

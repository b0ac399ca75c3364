"""promtool, which Debian's package prometheus brings."""

import subprocess

from tests.servers.missing import skipping
from tests.servers.process import find_program


def promtool(*arguments: object) -> None:
    """Run it; it must be content. Skips where it is absent, unless servers are required."""
    with skipping("Prometheus", instead="PATH"):
        program = find_program("promtool", package="prometheus")
    subprocess.run([program, *map(str, arguments)], check=True, timeout=100)

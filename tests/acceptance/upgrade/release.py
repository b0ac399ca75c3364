"""Earlier versions of the product: which they are, and their sources out of git."""

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.servers.missing import ServerMissingError

_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Release:
    """The last commit of a section of CHANGELOG.md. `folder` has its recorded state."""

    name: str
    commit: str

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / "left_by" / self.name

    def check_out(self, directory: Path) -> Path:
        """Extract the sources into `directory`. Raises ServerMissingError without that history."""
        done = subprocess.run(
            ["git", "archive", "--format=tar", self.commit],
            cwd=_ROOT,
            capture_output=True,
            check=False,
            timeout=60,
        )
        if done.returncode:
            raise ServerMissingError(f"git has no commit {self.commit}: the clone is not complete")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(directory, filter="data")
        return directory


# The section "The first release" of CHANGELOG.md, and the first part of the one above it to land.
FIRST = Release("first", "ba2304b78a4e0972610a40e1fcf7885006a6ce57")
SECOND = Release("second", "f282966a522086bd5bdeba7d7f856d546d323416")
RELEASES = (FIRST, SECOND)

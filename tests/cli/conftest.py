from pathlib import Path

import pytest

from tests.cli.proximity import Proximity


@pytest.fixture
def proximity(tmp_path: Path, broker: str, broker_kind: str, topic_prefix: str) -> Proximity:
    """The command against the embedded broker, then the real one."""
    command = Proximity(tmp_path, broker, topic_prefix)
    if broker_kind == "embedded":
        command.mention("detections", "dead-letters")
    return command

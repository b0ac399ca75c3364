from pathlib import Path

import pytest

from tests.cli.proximity import Proximity


@pytest.fixture
def proximity(tmp_path: Path, embedded_kafka: str, topic_prefix: str) -> Proximity:
    """The command against the embedded broker, which every machine has."""
    command = Proximity(tmp_path, embedded_kafka, topic_prefix)
    command.mention("detections", "dead-letters")
    return command

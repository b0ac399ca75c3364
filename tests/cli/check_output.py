"""The output of `proximity check --json`, and free ports for its checks."""

import json
import socket
from typing import Any


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def ports() -> dict[str, str]:
    """The image gives `run` and `api`, which are two processes, one port for their metrics."""
    metrics = dict.fromkeys(("METRICS_PORT", "API_METRICS_PORT"), free_port())
    given = metrics | {"API_PORT": free_port(), "METRICS_HOST": "127.0.0.1"}
    return {f"PROXIMITY_{name}": value for name, value in given.items()}


def findings_of(done: Any) -> dict[str, tuple[str, str]]:
    """The state and the result of each finding."""
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {f"{row['part']} {row['what']}": (row["state"], row["told"]) for row in rows}

"""What `demo --serve` leaves for those who look around: files that fit, and lines to paste."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.cli.demo.stage import Stage
from engine.process.settings import PREFIX

_UUID = "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10"
# Entrance, study desk, lending desk: a template, html, and what the customer's service says.
_WAY = ((44, "far"), (23, "near"), (45, "immediate"))
_ENV, _DETECTIONS = "env", "you.jsonl"
_WIDTH = 80


def command() -> str:
    """This very command, as a shell takes it from here."""
    beside = Path(sys.executable).with_name("proximity")
    if not beside.is_file():
        return f"{shlex.quote(sys.executable)} -m engine.cli"
    shown = os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
    return shlex.quote(shown)


def env_file(directory: Path) -> Path:
    """The file that other commands take for --env-file."""
    return directory / _ENV


def write_files(stage: Stage, directory: Path) -> None:
    """Complete the file of settings, and write detections of somebody who walks in."""
    settings = stage.settings
    key = settings.secret_key.get_secret_value() if settings.secret_key else ""
    with env_file(directory).open("a", encoding="utf-8") as file:
        file.write(f"{PREFIX}SECRET_KEY={key}\n")
        file.write(f"{PREFIX}PATH_LOSS_EXPONENT={settings.path_loss_exponent}\n")
        networks = ",".join(str(network) for network in settings.connector_allow_networks)
        file.write(f"{PREFIX}CONNECTOR_ALLOW_NETWORKS={networks}\n")
    (directory / _DETECTIONS).write_bytes(b"".join(_detection(*each) for each in _WAY))


def _detection(minor: int, proximity: str) -> bytes:
    device = {"udid": "you", "name": "Android"}
    fields = {"uuid": _UUID, "major": 1, "minor": minor, "proximity": proximity, "device": device}
    return msgspec.json.encode(fields) + b"\n"


def told(stage: Stage, directory: Path) -> Sequence[str]:
    """Where everything is, and what to try; the lines can be pasted."""
    with_file = ("--env-file", str(env_file(directory)))
    tries = (
        ("Walk in yourself:", ("publish", str(directory / _DETECTIONS), "--now")),
        ("What came of it:", ("notifications", "tail", "--udid", "you", "--from-beginning")),
        ("What SQL has counted, and whether that is right:", ("statistics",)),
        ("", ("verify",)),
    )
    lines = [
        "Still running, until Ctrl-C:",
        f"  interface  http://127.0.0.1:{stage.api_port}/docs",
        f"             {stage.email} with the password {stage.password}",
        f"  metrics    http://127.0.0.1:{stage.metrics_port}/metrics",
        f"  Kafka      {stage.settings.kafka_bootstrap_servers}",
        "In another terminal, from this directory:",
    ]
    for title, words in tries:
        lines += [f"  {title}"] if title else []
        lines += [f"    {line}" for line in _pasted((command(), *with_file), words)]
    return [*lines, "Notifications as they come:"]


def _pasted(start: Sequence[str], words: Sequence[str]) -> list[str]:
    """One line, or two with a backslash where one would be too long."""
    first, second = " ".join(start), shlex.join(words)
    whole = f"{first} {second}"
    return [whole] if len(whole) + 4 <= _WIDTH else [f"{first} \\", f"    {second}"]

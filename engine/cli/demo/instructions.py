"""The end of the demo's output: next steps, or with --serve files and commands to paste."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.process.settings import PREFIX, Settings

_UUID = "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10"
# Entrance, study desk, lending desk: a template, html, and content from the customer's service.
_WAY = ((44, "far"), (23, "near"), (45, "immediate"))
_ENV, _DETECTIONS = "env", "you.jsonl"
_WIDTH = 80
_NEXT = (
    "What next:",
    "  {command} demo --serve     keep the demo running, to explore it",
    "  {command} publish --help   your own detections, JSON or CSV",
    "  {command} run --help       on your own Kafka, Redis and PostgreSQL",
)


class RunningDemo(NamedTuple):
    """The data that other commands need to use the demo: its settings, ports and account."""

    settings: Settings
    metrics_port: int
    api_port: int
    email: str
    password: str


def command() -> str:
    """The command `proximity` as the user types it in this directory."""
    installed = Path(sys.executable).with_name("proximity")
    if not installed.is_file():
        return f"{shlex.quote(sys.executable)} -m engine.cli"
    shown = os.path.relpath(installed) if installed.is_relative_to(Path.cwd()) else str(installed)
    return shlex.quote(shown)


def env_file(directory: Path) -> Path:
    """The file to pass to other commands as --env-file."""
    return directory / _ENV


def next_steps() -> list[str]:
    """The next steps after a demo that has ended."""
    return [line.format(command=command()) for line in _NEXT]


def write_files(settings: Settings, directory: Path) -> None:
    """Complete the file of settings, and write detections of a visitor to publish."""
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


def instructions(demo: RunningDemo, directory: Path) -> list[str]:
    """The addresses of the running demo, and commands that can be pasted."""
    with_file = ("--env-file", str(env_file(directory)))
    tries = (
        ("Walk in yourself:", ("publish", str(directory / _DETECTIONS), "--now")),
        ("The notifications:", ("notifications", "tail", "--udid", "you", "--from-beginning")),
        ("The counts in SQL, and a check of them:", ("statistics",)),
        ("", ("verify",)),
    )
    lines = [
        "Still running, until Ctrl-C:",
        f"  console    http://127.0.0.1:{demo.api_port}/console",
        f"             {demo.email} with the password {demo.password}",
        f"  interface  http://127.0.0.1:{demo.api_port}/docs",
        f"  metrics    http://127.0.0.1:{demo.metrics_port}/metrics",
        f"  Kafka      {demo.settings.kafka_bootstrap_servers}",
        "In another terminal, from this directory:",
    ]
    for title, words in tries:
        lines += [f"  {title}"] if title else []
        lines += [f"    {line}" for line in _pasted((command(), *with_file), words)]
    return [*lines, "Notifications as they come:"]


def _pasted(start: Sequence[str], words: Sequence[str]) -> list[str]:
    """One line, or two joined by a backslash if one would be too long."""
    first, second = " ".join(start), shlex.join(words)
    whole = f"{first} {second}"
    return [whole] if len(whole) + 4 <= _WIDTH else [f"{first} \\", f"    {second}"]

"""deploy/compose.yaml, read."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def services() -> dict[str, dict[str, Any]]:
    """The services by name, anchors resolved."""
    found: dict[str, dict[str, Any]] = document()["services"]
    return found


def document() -> dict[str, Any]:
    """The whole file."""
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return read


def of_ours() -> dict[str, dict[str, Any]]:
    """The services that run this project's image."""
    return {name: service for name, service in services().items() if "build" in service}


def default(value: str) -> str:
    """The value with each `${NAME:-default}` replaced by its default, as compose does."""
    before, opening, rest = value.partition("${")
    if not opening:
        return value
    expression, _, after = rest.partition("}")
    return before + expression.partition(":-")[2] + default(after)

"""Writes deploy/grafana/dashboards: one file for each dashboard."""

import json
from pathlib import Path

from deploy.grafana.interface import INTERFACE
from deploy.grafana.overview import OVERVIEW
from deploy.grafana.roles import CONNECTOR, RECORDER, TRIGGER

DIRECTORY = Path(__file__).parent / "dashboards"
DASHBOARDS = (OVERVIEW, TRIGGER, CONNECTOR, RECORDER, INTERFACE)


def files() -> dict[str, str]:
    """The content of each file of the directory, by name."""
    return {f"{each.name}.json": json.dumps(each.json(), indent=1) + "\n" for each in DASHBOARDS}


def main() -> None:
    """Write the files, and delete files of former dashboards."""
    DIRECTORY.mkdir(exist_ok=True)
    written = files()
    for path in DIRECTORY.glob("*.json"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (DIRECTORY / name).write_text(text)


if __name__ == "__main__":
    main()

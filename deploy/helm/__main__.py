"""Writes values.schema.json of the chart."""

import json
from pathlib import Path

from deploy.helm.values_schema import values_schema

CHART = Path(__file__).parent / "proximity"
FILE = CHART / "values.schema.json"


def text() -> str:
    """What belongs into the file."""
    return json.dumps(values_schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())

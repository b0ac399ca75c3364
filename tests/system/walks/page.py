"""docs/interface.md as a script: its commands, and the answers that it shows."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.system.walks.user import ROOT

PAGE = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VARIES = re.compile(r"<[a-z ]+>")  # a text or a number
_REQUEST = re.compile(r'call (?:-X (\w+) )?"?\$BASE(/[^\s"?]*)\S*( -d)?|\$BASE/(auth)')
BASE = "BASE=http://127.0.0.1:8000/v2"
MARK = "=== next answer ==="


class Step(NamedTuple):
    """A command of the page, and the answer that follows it, if one does."""

    command: str
    answer: str | None


def steps() -> Iterator[Step]:
    """The commands of the page, except those that start servers."""
    blocks = [match.groups() for match in _BLOCK.finditer(PAGE)]
    for place, (kind, text) in enumerate(blocks):
        if kind == "sh" and not text.startswith("proximity "):
            after = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
            yield Step(text, after[1] if after[0] == "json" else None)


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in bash, to its end."""
    return subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


def operations_of(step: Step) -> Iterator[tuple[str, str]]:
    """Method and path of each request, with * for an id."""
    for method, path, data, auth in _REQUEST.findall(step.command):
        if auth:
            yield "POST", "/auth"
        else:
            yield method or ("POST" if data else "GET"), re.sub(r"/\d+", "/*", path)


def known(answer: Any, shown: Any) -> Any:
    """The answer, with the page's values for fields that differ each time."""
    if isinstance(shown, str) and _VARIES.fullmatch(shown) and isinstance(answer, str | float):
        return shown
    if isinstance(answer, dict) and isinstance(shown, dict):
        return {name: known(value, shown.get(name)) for name, value in answer.items()}
    if isinstance(answer, list) and isinstance(shown, list) and len(answer) == len(shown):
        return [known(one, other) for one, other in zip(answer, shown, strict=True)]
    return answer

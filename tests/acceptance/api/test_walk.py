"""docs/interface.md, run as it stands: its commands give the answers that it shows."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from catalog.migrate import migrate
from tests.acceptance.api.process import ApiProcess
from tests.acceptance.rig import Rig

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VARIES = re.compile(r"<[a-z ]+>")  # a text or a number
_REQUEST = re.compile(r'call (?:-X (\w+) )?"?\$BASE(/[^\s"?]*)\S*( -d)?|\$BASE/(auth)')
_BASE = "BASE=http://127.0.0.1:8000/v2"
_MARK = "=== next answer ==="


class Step(NamedTuple):
    """A command of the page, and the answer that follows it, if one does."""

    command: str
    answer: str | None


def steps() -> Iterator[Step]:
    """Those of the page, but for how the servers are started."""
    blocks = [match.groups() for match in _BLOCK.finditer(PAGE)]
    for place, (kind, text) in enumerate(blocks):
        if kind == "sh" and not text.startswith("proximity "):
            after = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
            yield Step(text, after[1] if after[0] == "json" else None)


@pytest.fixture
async def walked(database_url: str, processes: Rig, tmp_path: Path) -> list[tuple[Step, Any]]:
    """Every step that shows an answer, and the answer that it got."""
    await migrate(database_url)
    load = processes.start("catalog", "load", str(ROOT / "docs/examples/catalog.json"))
    assert await load.ended() == 0
    served = await ApiProcess(processes).until_ready()
    script = [f'cd "{tmp_path}"']
    for step in steps():
        script.append(step.command.replace(_BASE, f"BASE={served.url}/v2"))
        if step.answer is not None:
            script.append(f"echo; echo '{_MARK}'")
    done = await asyncio.to_thread(_run, "\n".join(script))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(text) for text in done.stdout.split(_MARK)[:-1]]
    return list(zip([step for step in steps() if step.answer is not None], answers, strict=True))


def _run(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_answers_are_those_of_the_page(walked: list[tuple[Step, Any]]):
    assert len(walked) > 40
    for step, answer in walked:
        assert step.answer is not None
        assert _known(answer, json.loads(step.answer)) == json.loads(step.answer), step.command


async def test_every_operation_is_walked_through(served: ApiProcess):
    async with httpx.AsyncClient(base_url=served.url) as client:
        told = (await client.get("/openapi.json")).json()
    operations = {
        (method.upper(), re.sub(r"\{\w+\}", "*", path.removeprefix("/v2")))
        for path, methods in told["paths"].items()
        for method in methods
    }
    assert {operation for step in steps() for operation in _operations(step)} == operations


def _operations(step: Step) -> Iterator[tuple[str, str]]:
    for method, path, data, auth in _REQUEST.findall(step.command):
        if auth:
            yield "POST", "/auth"
        else:
            yield method or ("POST" if data else "GET"), re.sub(r"/\d+", "/*", path)


def _known(answer: Any, shown: Any) -> Any:
    """The answer, with the page's word for whatever the page says differs each time."""
    if isinstance(shown, str) and _VARIES.fullmatch(shown) and isinstance(answer, str | float):
        return shown
    if isinstance(answer, dict) and isinstance(shown, dict):
        return {name: _known(value, shown.get(name)) for name, value in answer.items()}
    if isinstance(answer, list) and isinstance(shown, list) and len(answer) == len(shown):
        return [_known(one, other) for one, other in zip(answer, shown, strict=True)]
    return answer

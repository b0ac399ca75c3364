"""An account holder's first hour: docs/interface.md as it stands, and a client generated from the
document."""

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
from aiopenapi3 import OpenAPI

from tests.api.process import EMAIL, PASSWORD
from tests.servers.proximity import ROOT, Command, Rig
from tests.servers.schema import make_schema

PAGE = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VARIES = re.compile(r"<[a-z ]+>")  # a text or a number
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


def known(answer: Any, shown: Any) -> Any:
    """The answer, with the page's values for fields that differ each time."""
    if isinstance(shown, str) and _VARIES.fullmatch(shown) and isinstance(answer, str | float):
        return shown
    if isinstance(answer, dict) and isinstance(shown, dict):
        return {name: known(value, shown.get(name)) for name, value in answer.items()}
    if isinstance(answer, list) and isinstance(shown, list) and len(answer) == len(shown):
        return [known(one, other) for one, other in zip(answer, shown, strict=True)]
    return answer


@pytest.fixture
async def walked(database_url: str, processes: Rig, tmp_path: Path) -> list[tuple[Step, Any]]:
    """Every step that shows an answer, and the answer that it got."""
    await make_schema(database_url)
    load = processes.start("catalog", "load", str(ROOT / "docs/examples/catalog.json"))
    assert await load.ended() == 0
    served = processes.start("api")
    await served.until_ready()
    script = [f'cd "{tmp_path}"']
    for step in steps():
        script.append(step.command.replace(BASE, f"BASE={served.url}/v2"))
        if step.answer is not None:
            script.append(f"echo; echo '{MARK}'")
    bash = ["bash", "-eu", "-c", "\n".join(script)]
    done = await asyncio.to_thread(
        subprocess.run, bash, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(text) for text in done.stdout.split(MARK)[:-1]]
    return list(zip([step for step in steps() if step.answer is not None], answers, strict=True))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_answers_are_those_of_the_page(walked: list[tuple[Step, Any]]):
    assert len(walked) > 40
    for step, answer in walked:
        assert step.answer is not None
        assert known(answer, json.loads(step.answer)) == json.loads(step.answer), step.command


async def test_a_generated_client_signs_in_and_manages_a_venue(served: Command) -> None:
    async with httpx.AsyncClient() as http:
        document = (await http.get(f"{served.url}/openapi.json")).text
    client = OpenAPI.loads(f"{served.url}/openapi.json", document)
    call = client._

    envelope = await call.authenticate(data={"email": EMAIL, "password": PASSWORD})
    client.authenticate(key=EMAIL, token=envelope.session.token)
    venue = await call.create_venue(data={"name": "Pier", "address": "2 Quai", "active": True})
    triple = {"uuid": "f7826da6-4fa2-4e98-8024-bc5b71e0893e", "major": 9, "minor": 1}
    fields = {"name": "door", **triple, "active": True, "proximity": "near"}
    made = await call.create_beacon(parameters={"id": venue.id}, data=fields)
    listed = await call.list_beacons(parameters={"id": venue.id})
    assert [each.id for each in listed] == [made.id]
    assert str(listed[0].uuid) == fields["uuid"]

"""What lists is whole on 80 columns, and has a form for programs."""

import json

import pytest

from engine.cli import application as cli
from engine.process.settings import PREFIX, Settings
from tests.integration.commands.terminal import on_a_terminal


def test_settings_are_not_cut_at_80_columns() -> None:
    lines = on_a_terminal("settings", columns=80)
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []
    text = " ".join(" ".join(lines).split())
    for name, field in Settings.model_fields.items():
        assert f"{PREFIX}{name.upper()}=" in text
        assert " ".join((field.description or "").split()) in text


def test_settings_are_a_table_where_it_fits() -> None:
    header, *rows = on_a_terminal("settings", columns=400)
    assert header.split() == ["name", "value", "default", "source", "meaning"]
    assert len(rows) == len(Settings.model_fields)


def test_settings_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXIMITY_REDIS_URL", "redis://me:hunter2@host:1/2")
    assert cli.run(["settings", "--json"]) == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert len(rows) == len(Settings.model_fields)
    redis = rows["PROXIMITY_REDIS_URL"]
    assert (redis["value"], redis["source"]) == ("redis://me:********@host:1/2", "environment")

"""`proximity account list`, for people and for programs."""

import json

import pytest

from engine.cli.application import run


def test_accounts_are_listed_in_both_forms(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", sqlite_url)
    monkeypatch.setattr("engine.cli.account._password", lambda _: "a password that is long")
    create = ["account", "create", "a@b.example", "--company", "Mall", "--create-company"]
    for command in (["migrate"], [*create, "--permission", "1"]):
        assert run(command) == 0
    capsys.readouterr()
    assert run(["account", "list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["company", "e-mail", "state", "levels"],
        ["Mall", "a@b.example", "active", "all", "1"],
    ]
    assert run(["account", "permissions", "a@b.example", "--permission", "device=0"]) == 0
    capsys.readouterr()
    assert run(["account", "list"]) == 0
    assert capsys.readouterr().out.endswith("  active  device 0, the rest 1\n")
    assert run(["account", "list", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    account = json.loads(line)
    assert (account["company"], account["active"]) == ("Mall", True)
    levels = account["permission"]
    assert (levels.pop("device"), set(levels.values())) == (0, {1})

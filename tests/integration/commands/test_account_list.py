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
    assert capsys.readouterr().out.startswith("Mall\ta@b.example\tactive\t{")
    assert run(["account", "list", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    account = json.loads(line)
    assert (account["company"], account["email"], account["active"]) == (
        "Mall",
        "a@b.example",
        True,
    )
    assert set(account["permission"].values()) == {1}

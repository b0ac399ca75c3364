"""What the documents for operators name exists: settings, commands, and each other's chapters."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.cli import application as cli
from engine.process.settings import PREFIX, Settings, variable_name
from engine.process.settings_sources import file_variable, secret_settings
from tests.deploy.files import ROOT

# Words in capitals that are none of ours.
_OTHERS = {"PROXIMITY_TEST_FULL", "SASL_SSL"}  # the latter is a value


@pytest.mark.parametrize("name", ["operations.md", "runbook.md"])
def test_settings_commands_and_links_exist(name: str) -> None:
    document = ROOT / "docs" / name
    text = document.read_text()
    known = {variable_name(field) for field in Settings.model_fields}
    known |= {file_variable(field) for field in secret_settings()}
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text))
    assert named - _OTHERS <= known | {each.removeprefix(PREFIX) for each in known}
    # A command in a span of code, or at the begin of a line of code.
    lines = re.findall(r"(?:`|^    )(?:\.venv/bin/)?proximity ([a-z][^`\n]*)", text, re.MULTILINE)
    assert lines
    for line in lines:
        _assert_command(line)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (Path(document).parent / link).exists(), link


def _assert_command(line: str) -> None:
    group: Any = cli.command_group().load()
    for word in line.split():
        if not hasattr(group, "commands"):
            break
        assert word in group.commands, line
        group = group.commands[word]
    options = {name for each in group.params for name in each.opts}
    assert set(re.findall(r"--[a-z-]+", line)) <= options, line

"""What the documents for operators name exists: settings, commands, and each other's chapters."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.cli import application as cli
from engine.process.settings import PREFIX, Settings, variable_name
from engine.process.settings_sources import file_variable, secret_settings
from tests.deploy.files import ROOT

DOCUMENTS = [ROOT / "docs" / "operations.md", ROOT / "docs" / "runbook.md"]
# Words in capitals that are none of ours.
_OTHERS = {"PROXIMITY_TEST_FULL", "SASL_SSL"}  # the latter is a value
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


@each_document
def test_settings_exist(document: Path) -> None:
    known = {variable_name(name) for name in Settings.model_fields}
    known |= {file_variable(name) for name in secret_settings()}
    known |= {name.removeprefix(PREFIX) for name in known}
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", document.read_text()))
    assert named - _OTHERS <= known
    assert len(named) > 5


@each_document
def test_commands_exist(document: Path) -> None:
    """`proximity` and what is behind it, in a span of code or at the begin of a line of code."""
    text = document.read_text()
    lines = re.findall(r"(?:`|^    )(?:\.venv/bin/)?proximity ([a-z][^`\n]*)", text, re.MULTILINE)
    assert lines
    for line in lines:
        group: Any = cli.command_group().load()
        for word in line.split():
            if not hasattr(group, "commands"):
                break
            assert word in group.commands, line
            group = group.commands[word]
        options = {name for each in group.params for name in each.opts}
        assert set(re.findall(r"--[a-z-]+", line)) <= options, line


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        assert (document.parent / link).exists(), link

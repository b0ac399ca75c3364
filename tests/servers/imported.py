"""The product's modules, imported before a fork."""

import gc

import aiosqlite  # noqa: F401
import rich.console  # noqa: F401
import uvicorn.protocols.http.h11_impl  # noqa: F401

import api.console.routes  # noqa: F401
import catalog.migrate  # noqa: F401
import engine.process.lifecycle
import engine.wiring.api
import engine.wiring.recorder
import engine.wiring.run
import engine.wiring.trigger  # noqa: F401
from engine.cli.application import command_group

# As engine.cli does while it imports.
gc.disable()
for name in command_group.list_commands(None):
    command_group.get_command(None, name)

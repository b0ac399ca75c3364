"""A schema registry over HTTP, empty."""

from collections.abc import AsyncIterator

import pytest

from tests.servers.schema_registry import SchemaRegistryService


@pytest.fixture
async def registry() -> AsyncIterator[SchemaRegistryService]:
    async with SchemaRegistryService().running() as running:
        yield running

"""A schema registry over HTTP, empty."""

from collections.abc import AsyncIterator

import pytest

from tests.servers.schema_registry import SchemaRegistryService, schema_registry


@pytest.fixture
async def registry() -> AsyncIterator[SchemaRegistryService]:
    async with schema_registry() as running:
        yield running

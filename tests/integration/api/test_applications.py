"""Applications, as a file loads them and the interface returns them."""

import json

import pytest
from sqlalchemy import select

from catalog.load import load_document
from catalog.models import Company
from tests.integration.api.harness import Harness


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2027-01-01T00:00:00+0530", "2027-01-01T00:00:00+0530"),
        ("2027-01-01T00:00:00-03:00", "2027-01-01T00:00:00-0300"),
        ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00+0000"),
        (None, None),
    ],
)
async def test_the_end_keeps_the_offset_in_which_it_was_written(
    api: Harness, written: str | None, expected: str | None
):
    application = {"name": "app", "type": "ios", "api_key": "key", "expire_on": written}
    document = {"companies": [{"name": "Library", "applications": [application]}]}
    await load_document(api.database.write, json.dumps(document).encode(), None)
    async with api.database.read() as session:
        company = await session.scalar(select(Company))
    (found,) = (await api.call("GET", "/profile/application", await api.account(company))).json()
    assert found["expire_on"] == expected
    assert "expire_offset" not in found

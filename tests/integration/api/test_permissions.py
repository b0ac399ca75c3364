"""Every operation at every level of every area."""

import pytest
from sqlalchemy import select

from catalog.fields.company import AREAS
from catalog.models import Account
from tests.integration.api.harness import Harness, Headers
from tests.integration.api.operations import OWN, QUESTIONS, Operation, operations

# By what a path holds, the first that fits; the level is 1 for GET, else 2.
AREA_OF = {
    "/statistics": "analytic",
    "/beacon": "beacon",
    "/geofencing": "region",
    "/campaign": "campaign",
    "/region": "region",
    "/venue": "region",
    "/connector": "connector",
    "/crm": "crm",
    "/profile": "profile",
    "/audit": "profile",
    "/realtime": "realtime",
}


SESSION = ("x-service-key", "x-service-token")


def area_of(operation: Operation) -> str:
    return next(area for part, area in AREA_OF.items() if part in operation.path)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("others", [0, 2])
async def test_every_operation_needs_its_area(api: Harness, level: int, others: int):
    areas = set(AREA_OF.values())
    holders = {
        area: await api.account(None, **(dict.fromkeys(AREAS, others) | {area: level}))
        for area in areas
    }
    seen = set()
    for operation in operations(api.app):
        if str(operation) in OWN:
            continue
        area = area_of(operation)
        seen.add(area)
        path = operation.filled(id=1, uid=1)
        answer = await api.call(operation.method, path, holders[area], operation.body)
        reads = operation.method == "GET" or str(operation) in QUESTIONS
        needed = 1 if reads else 2
        refused = answer.status_code == 403
        assert refused == (level < needed), f"{operation}: {answer.text}"
        if refused:
            message = f"needs level {needed} in the permission area {area}"
            assert answer.json() == {"status": "error", "message": message, "code": 403}
    assert seen == areas


async def test_every_operation_needs_a_session(api: Harness):
    good = await api.account()
    other = await api.account()
    bad: tuple[Headers, ...] = (
        {},
        {"x-service-key": good["x-service-key"]},
        {"x-service-token": good["x-service-token"]},
        good | {"x-service-token": ""},
        good | {"x-service-token": "guess"},
        good | {"x-service-key": other["x-service-key"]},
    )
    for operation in operations(api.app):
        for headers in bad:
            path = operation.filled(id=1, uid=1)
            answer = await api.call(operation.method, path, headers, operation.body)
            assert answer.status_code == 401, operation
            fields = answer.json().pop("fields", {})
            assert fields.keys() == {n for n in SESSION if not headers.get(n)}, operation
            expected = {"status": "error", "message": "no session", "code": 401}
            assert answer.json() == (expected | {"fields": fields} if fields else expected)


async def test_operations_on_the_own_account_need_no_level(api: Harness):
    for operation in operations(api.app):
        if str(operation) in OWN:
            holder = await api.account(None, **dict.fromkeys(AREAS, 0))
            answer = await api.call(operation.method, operation.path, holder, operation.body)
            assert answer.status_code in (200, 400), answer.text


async def test_an_area_that_is_not_kept_is_closed(api: Harness):
    holder = await api.account()
    async with api.database.write.begin() as session:
        account = await session.scalar(
            select(Account).where(Account.email == holder["x-service-key"])
        )
        assert account is not None
        account.permission = {"profile": 1}
    assert (await api.call("GET", "/region", holder)).status_code == 403
    profile = (await api.call("GET", "/profile", holder)).json()
    assert profile["permission"] == dict.fromkeys(AREAS, 0) | {"profile": 1}

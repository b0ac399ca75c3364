"""Checks Kafka's consumer groups, one for each role: their coordinator, and the login's rights.

aiokafka's own request does not read the rights in the coordinator's answer.
"""

import asyncio
from typing import Any, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest_v3, DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request
from aiokafka.protocol.coordination import FindCoordinatorRequest

from engine.cli.check.finding import Finding, bad, ok, warning
from engine.kafka.broker_connection import any_broker, broker_at
from engine.kafka.cluster_metadata import READ, Rights
from engine.process.settings import Settings
from engine.wiring.kafka import role_group
from engine.wiring.run import ROLES

_PART = "Kafka"
_GROUP = 0
_FORBIDDEN = 30
# Errors while a coordinator is elected, loads its groups, or has just moved.
_TRANSIENT = (14, 15, 16)
_WAIT_SECONDS = 6.0
_PAUSE_SECONDS = 0.5
_UNKNOWN = Rights(-(2**31))


class _DescribeGroupsRequest(DescribeGroupsRequest_v3):  # type: ignore[misc]  # aiokafka is not typed
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = DescribeGroupsRequest_v3.SCHEMA


class _DescribeGroup(Request[_DescribeGroupsRequest]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_DescribeGroupsRequest]) -> _DescribeGroupsRequest:
        return request_struct_class([self._group], True)


class GroupState(NamedTuple):
    """`error` is Kafka's number, 0 for none."""

    error: int
    rights: Rights


async def check_groups(settings: Settings) -> list[Finding]:
    """Ask for all groups concurrently; each takes at most some 15 s.

    A cluster that never had a group creates its offsets topic now, as it would at a role's start.
    """
    return list(await asyncio.gather(*(_check(settings, role) for role in ROLES)))


async def _check(settings: Settings, role: str) -> Finding:
    group = role_group(settings, role)
    subject = f"group {group}"
    try:
        state = await _state(settings, group)
    except (IncompatibleBrokerVersion, NotImplementedError):
        return ok(_PART, subject, "the broker does not report rights")
    except (KafkaError, OSError, TimeoutError) as error:
        return bad(_PART, subject, f"its coordinator does not answer ({type(error).__name__})")
    return _finding(subject, state)


def _finding(subject: str, state: GroupState) -> Finding:
    if state.error == _FORBIDDEN:
        return bad(_PART, subject, "this login may not see it")
    if state.error in _TRANSIENT:
        return warning(_PART, subject, "no broker coordinates it: check __consumer_offsets")
    if state.error:
        return bad(_PART, subject, f"error {state.error}")
    if state.rights.has(READ) is False:
        return bad(_PART, subject, "this login may see it, and not read it")
    return ok(
        _PART, subject, "read" if state.rights.has(READ) else "the broker does not report rights"
    )


async def _state(settings: Settings, group: str) -> GroupState:
    """The group's state, once a broker coordinates it or the time is up."""
    give_up = asyncio.get_running_loop().time() + _WAIT_SECONDS
    while True:
        state = await _describe(settings, group)
        if state.error not in _TRANSIENT or asyncio.get_running_loop().time() > give_up:
            return state
        await asyncio.sleep(_PAUSE_SECONDS)


async def _describe(settings: Settings, group: str) -> GroupState:
    async with any_broker(settings) as broker:
        found = await broker.send(FindCoordinatorRequest(group, _GROUP))
    if found.error_code:
        return GroupState(found.error_code, _UNKNOWN)
    async with broker_at(settings, found.host, found.port) as coordinator:
        answer: Any = (await coordinator.send(_DescribeGroup(group))).to_object()
    (found_group,) = answer["groups"]
    return GroupState(found_group["error_code"], Rights(found_group["authorized_operations"]))

"""Collects the outcome of every call: published, a dead letter with its reason, or declined."""

import json
from collections import Counter
from typing import Any, NamedTuple

from tests.system.topics import TopicSet


class Account(NamedTuple):
    """Ids of calls by company name, and by outcome. Ids may repeat."""

    bodies: list[dict[str, Any]]
    calls: dict[str, Counter[str]]
    notifications: dict[str, list[dict[str, Any]]]
    letters: dict[str, Counter[str]]
    reasons: dict[str, Counter[str]]

    def declined(self, company: str) -> set[str]:
        """Calls without an outcome."""
        published = {each["id"] for each in self.notifications.get(company, ())}
        return set(self.calls[company]) - published - set(self.letters.get(company, ()))


async def account(topics: TopicSet, names: dict[int, str]) -> Account:
    """Read the topics to their ends. `names` of companies by their id."""
    calls: dict[str, Counter[str]] = {}
    bodies = [json.loads(record.value or b"") for record in await topics.read("connector-calls")]
    for body in bodies:
        calls.setdefault(names[body["company"]["id"]], Counter())[body["id"]] += 1
    notifications: dict[str, list[dict[str, Any]]] = {}
    for record in await topics.read("notifications"):
        body = json.loads(record.value or b"")
        notifications.setdefault(names[body["company"]["id"]], []).append(body)
    letters: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    for record in await topics.read("dead-letters"):
        body = json.loads(record.value or b"")
        name = names[body["company"]["id"]]
        letters.setdefault(name, Counter())[body["id"]] += 1
        reason = dict(record.headers)["reason"].decode()
        reasons.setdefault(name, Counter())[reason] += 1
    return Account(bodies, calls, notifications, letters, reasons)

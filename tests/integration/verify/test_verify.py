"""`proximity verify` as a whole: what it prints, and its exit status."""

import json

import pytest
from sqlalchemy import text

from catalog.database import Database
from tests.integration.commands.proximity import Proximity, detection

on_one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


async def record(proximity: Proximity, database: Database, *udids: str) -> None:
    """Publish a detection of each, and store offsets after all of them."""
    lines = b"\n".join(detection(udid) for udid in udids)
    assert proximity("publish", "-", given=lines).returncode == 0
    ends: dict[int, int] = {}
    for each in await proximity.records("detections"):
        ends[each.partition] = each.offset + 1
    topic = f"{proximity.topic_prefix}detections"
    async with database.engine.begin() as connection:
        for partition, end in ends.items():
            await connection.execute(
                text("INSERT INTO recorder_offset VALUES (:topic, :partition, :end, NULL)"),
                {"topic": topic, "partition": partition, "end": end},
            )


async def test_equal(proximity: Proximity, database: Database) -> None:
    await record(proximity, database, "a", "a", "a")
    done = proximity("verify")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "compared 1 devices with 3 records (0 of them malformed)",
        "no differences",
    ]


async def test_differences_are_shown_and_are_a_failure(
    proximity: Proximity, database: Database
) -> None:
    await record(proximity, database, "a", "a", "a", "a", "b")
    done = proximity("verify")
    assert done.returncode == 1
    header, *lines = [line.split() for line in done.stdout.splitlines()]
    assert header == ["company", "device", "udid", "figure", "topics", "SQL"]
    assert lines == [
        ["1", "5", "a", "nb_beacon", "4", "3"],
        ["1", "missing", "b", "nb_beacon", "1", "0"],
    ]
    assert done.stderr.splitlines()[-1] == "proximity: 2 differences"


@on_one_database
async def test_json_and_passes(proximity: Proximity, database: Database) -> None:
    await record(proximity, database, "a", "b", "c", "c")
    done = proximity("verify", "--json", "--passes", "3")
    assert done.returncode == 1
    found = {(e["udid"], e["topics"], e["sql"]) for e in map(json.loads, done.stdout.splitlines())}
    assert found == {("a", 1, 3), ("b", 1, 0), ("c", 2, 0)}
    assert "compared 1 devices with 4 records" in done.stderr


@on_one_database
async def test_a_recorder_that_never_ran(proximity: Proximity, database: Database) -> None:
    assert proximity("publish", "-", given=detection("a")).returncode == 0
    done = proximity("verify")
    assert done.returncode == 1
    assert "no recorder has recorded anything of these topics in this database" in done.stderr


@on_one_database
async def test_figures_of_topics_that_are_no_more(proximity: Proximity, database: Database) -> None:
    """As after `run --embedded` was started again: SQL has more, and that is no difference."""
    topic = f"{proximity.topic_prefix}detections"
    async with database.engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO recorder_past VALUES (:topic, '2026-11-20 10:00:00')"),
            {"topic": topic},
        )
    done = proximity("verify")
    assert done.returncode == 0, done.stderr
    assert f"another topic {topic} was recorded before this one" in done.stderr
    await record(proximity, database, "a", "a", "a", "a")
    done = proximity("verify")  # three are in SQL: one is missing for certain
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "proximity: 1 differences"


@on_one_database
async def test_more_than_an_edit_of_the_catalog_explains(
    proximity: Proximity, database: Database
) -> None:
    await record(proximity, database, "a", "a", "a")
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE beacon SET active = false"))
    done = proximity("verify")
    assert done.returncode == 0
    assert "an edit of the catalog may explain it" in done.stdout
    assert done.stderr.splitlines()[-1] == (
        "no differences but 1 that later edits of the catalog may explain "
        "(--strict makes them a failure)"
    )
    done = proximity("verify", "--strict")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "proximity: 1 differences, 1 of them perhaps edits"


@on_one_database
async def test_an_offset_that_the_topic_does_not_have(
    proximity: Proximity, database: Database
) -> None:
    await record(proximity, database, "a", "a", "a")
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE recorder_offset SET next_offset = 100"))
    done = proximity("verify")
    assert done.returncode == 1
    assert "SQL has recorded up to 100, but the topic ends at 3" in done.stderr


@on_one_database
async def test_a_topic_that_is_deleted(proximity: Proximity, database: Database) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO recorder_offset VALUES (:topic, 0, 3, NULL)"),
            {"topic": f"{proximity.topic_prefix}detections"},
        )
    done = proximity("verify")
    assert done.returncode == 1
    assert "SQL has recorded up to 3, but the topic ends at 0" in done.stderr

"""Deleted venues, beacons, geofences and campaigns keep their rows, and no id is given again.

`deleted_at` hides a record (catalog.soft_deletion); the triple of a beacon is unique among those
that are not deleted. On SQLite, which would give the id of a table's last row again, every table
counts its ids from here on; what was deleted before is remembered by what still names it. An
application keeps the offset in which `expire_on` was written.
"""

from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_DELETABLE = ("venue", "beacon", "geofence", "campaign")
_COUNTED = (
    "company",
    "account",
    "application",
    "connector",
    "device",
    "tag",
    "session",
    *_DELETABLE,
    "detection_trace",
    "authentication_trace",
)
_TRIPLE = ["uuid", "major", "minor"]
_OLD_TRIPLE = ", \n\tCONSTRAINT uq_beacon_uuid_major_minor UNIQUE (uuid, major, minor)"
_LIVING = sa.text("deleted_at IS NULL")
# Columns that hold ids of records that may have been deleted.
_NAMED_IN = {
    "venue": ("statistic.venue_id", "detection_trace.venue_id"),
    "beacon": ("statistic.ref", "detection_trace.beacon_id", "presence.beacon_id"),
    "campaign": ("statistic.ref", "reception.campaign_id"),
    "device": (
        "statistic_device.device_id",
        "detection_trace.device_id",
        "authentication_trace.device_id",
        "reception.device_id",
        "presence.device_id",
    ),
    "application": ("authentication_trace.application_id",),
}
_OF_KIND = ("statistic.ref",)


def upgrade() -> None:
    """Mark what is deleted instead of deleting it, and count ids."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    if sqlite:
        _refuse_foreign_keys()
        for table in _COUNTED:
            _rebuild(table)
            _count_on(table)
    for table in _DELETABLE:
        op.add_column(table, sa.Column("deleted_at", sa.DateTime(timezone=True)))
    if sqlite:
        op.execute("DROP INDEX IF EXISTS uq_beacon_uuid_major_minor")  # a downgrade's
    else:
        op.drop_constraint(op.f("uq_beacon_uuid_major_minor"), "beacon")
    op.create_index(
        op.f("uq_beacon_uuid_major_minor"),
        "beacon",
        _TRIPLE,
        unique=True,
        postgresql_where=_LIVING,
        sqlite_where=_LIVING,
    )
    offset = sa.Column("expire_offset", sa.Integer(), nullable=False, server_default="0")
    op.add_column("application", offset)


def downgrade() -> None:
    """Delete what is marked. SQLite's tables go on counting ids."""
    op.drop_column("application", "expire_offset")
    for table in reversed(_DELETABLE):
        op.execute(f"DELETE FROM {table} WHERE deleted_at IS NOT NULL")  # noqa: S608  # our names
    op.drop_index(op.f("uq_beacon_uuid_major_minor"), "beacon")
    for table in _DELETABLE:
        op.drop_column(table, "deleted_at")
    if op.get_bind().dialect.name == "sqlite":
        op.create_index(op.f("uq_beacon_uuid_major_minor"), "beacon", _TRIPLE, unique=True)
    else:
        op.create_unique_constraint(op.f("uq_beacon_uuid_major_minor"), "beacon", _TRIPLE)


def _refuse_foreign_keys() -> None:
    if op.get_bind().scalar(sa.text("PRAGMA foreign_keys")):
        raise ValueError("foreign keys are on, and tables would be emptied; run: proximity migrate")


def _rebuild(table: str) -> None:
    """The same table, rows and indexes, counting its ids; SQLite cannot alter that.

    catalog.migrate has switched foreign keys off: dropping a table would empty those below it.
    What SQLite keeps as the text of a table is changed in the one place, and nothing else is.
    """
    made, indexes = _made("table", table)[0], _made("index", table)
    if "AUTOINCREMENT" in made:  # a downgrade leaves it
        return
    changes = [
        (f"CREATE TABLE {table} (", f"CREATE TABLE rebuilt_{table} ("),
        ("PRIMARY KEY (id)", "PRIMARY KEY (id AUTOINCREMENT)"),
    ]
    if table == "beacon":
        changes.append((_OLD_TRIPLE, ""))
    for old, new in changes:
        if made.count(old) != 1:
            raise ValueError(f"the table {table} is not as an earlier version made it: no {old}")
        made = made.replace(old, new)
    op.execute(sa.text(_plain(made)))
    op.execute(f"INSERT INTO rebuilt_{table} SELECT * FROM {table}")  # noqa: S608  # our names
    op.execute(f"DROP TABLE {table}")
    op.execute(f"ALTER TABLE rebuilt_{table} RENAME TO {table}")
    for index in indexes:
        op.execute(sa.text(_plain(index)))


def _plain(sql: str) -> str:
    return sql.replace(":", r"\:")  # no parameters


def _made(kind: str, table: str) -> list[str]:
    query = sa.text(
        "SELECT sql FROM sqlite_master WHERE type = :kind AND tbl_name = :name AND sql IS NOT NULL"
    )
    return list(op.get_bind().scalars(query, {"kind": kind, "name": table}))


def _count_on(table: str) -> None:
    """Count from the highest id that any row knows."""
    connection = op.get_bind()
    highest = max(connection.scalar(sa.text(query)) or 0 for query in _questions(table))
    connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table})
    if highest:
        counted = sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq)")
        connection.execute(counted, {"name": table, "seq": highest})


def _questions(table: str) -> Iterable[str]:
    yield f"SELECT max(id) FROM {table}"  # noqa: S608  # our names
    for place in _NAMED_IN.get(table, ()):
        named, column = place.split(".")
        kind = f" WHERE kind = '{table}'" if place in _OF_KIND else ""
        yield f"SELECT max({column}) FROM {named}{kind}"  # noqa: S608  # our names

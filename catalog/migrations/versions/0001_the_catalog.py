"""The catalog: companies and what they manage, the outbox, and the index's state.

A new database gets its identity here, so that the index of another database is recognized. The file
is long because a migration is one step, and is never edited once it has been applied somewhere.
"""

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_TABLES = (
    "company",
    "account",
    "application",
    "connector",
    "device",
    "venue",
    "tag",
    "beacon",
    "beacon_tag",
    "geofence",
    "campaign",
    "campaign_beacon",
    "campaign_geofence",
    "campaign_tag",
    "outbox",
    "index_state",
)


def upgrade() -> None:
    """Make the tables, and the one row of the index's state."""
    _create_company_tables()
    _create_venue_tables()
    _create_campaign_tables()
    state = _create_index_tables()
    op.bulk_insert(state, [{"id": 1, "catalog": str(uuid.uuid4()), "generation": 0}])


def downgrade() -> None:
    """Drop the tables."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_company_tables() -> None:
    op.create_table(
        "company",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("image", sa.Text()),
        sa.Column("description", sa.Text()),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("create_on", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_company")),
        sa.UniqueConstraint("name", name=op.f("uq_company_name")),
    )
    op.create_table(
        "account",
        sa.Column("id", _ID, nullable=False),
        sa.Column("company_id", _ID, nullable=False),
        sa.Column("email", sa.String(length=255), nullable=False),
        sa.Column("password_hash", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255)),
        sa.Column("fonction", sa.String(length=255)),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("permission", sa.JSON(), nullable=False),
        sa.Column("create_on", _INSTANT, nullable=False),
        sa.ForeignKeyConstraint(
            ["company_id"],
            ["company.id"],
            name=op.f("fk_account_company_id_company"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account")),
        sa.UniqueConstraint("email", name=op.f("uq_account_email")),
    )
    op.create_index(op.f("ix_account_company_id"), "account", ["company_id"])
    op.create_table(
        "application",
        sa.Column("id", _ID, nullable=False),
        sa.Column("company_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("api_key", sa.String(length=255), nullable=False),
        sa.Column("api_id", sa.String(length=255), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("expire_on", _INSTANT),
        sa.ForeignKeyConstraint(
            ["company_id"],
            ["company.id"],
            name=op.f("fk_application_company_id_company"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_application")),
        sa.UniqueConstraint("api_key", name=op.f("uq_application_api_key")),
    )
    op.create_index(op.f("ix_application_company_id"), "application", ["company_id"])
    op.create_table(
        "connector",
        sa.Column("id", _ID, nullable=False),
        sa.Column("company_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("method", sa.String(length=8), nullable=False),
        sa.Column("auth", sa.String(length=8), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text()),
        sa.CheckConstraint("auth IN ('header', 'get')", name=op.f("ck_connector_auth")),
        sa.CheckConstraint("method IN ('GET', 'POST')", name=op.f("ck_connector_method")),
        sa.ForeignKeyConstraint(
            ["company_id"],
            ["company.id"],
            name=op.f("fk_connector_company_id_company"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_connector")),
        sa.UniqueConstraint("company_id", name=op.f("uq_connector_company_id")),
    )
    op.create_table(
        "device",
        sa.Column("id", _ID, nullable=False),
        sa.Column("company_id", _ID, nullable=False),
        sa.Column("udid", sa.String(length=255), nullable=False),
        sa.Column("nb_beacon", sa.BigInteger(), nullable=False),
        sa.Column("nb_campaign", sa.BigInteger(), nullable=False),
        sa.Column("token_push", sa.Text()),
        sa.Column("name", sa.String(length=255)),
        sa.Column("version", sa.String(length=255)),
        sa.Column("model", sa.String(length=255)),
        sa.Column("id_connector", sa.BigInteger()),
        sa.Column("test", sa.Boolean(), nullable=False),
        sa.Column("create_on", _INSTANT, nullable=False),
        sa.Column("update_on", _INSTANT, nullable=False),
        sa.ForeignKeyConstraint(
            ["company_id"],
            ["company.id"],
            name=op.f("fk_device_company_id_company"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device")),
        sa.UniqueConstraint("company_id", "udid", name=op.f("uq_device_company_id_udid")),
    )


def _create_venue_tables() -> None:
    op.create_table(
        "venue",
        sa.Column("id", _ID, nullable=False),
        sa.Column("company_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("width", sa.Integer()),
        sa.Column("height", sa.Integer()),
        sa.Column("image", sa.Text()),
        sa.Column("time_zone", sa.String(length=64)),
        sa.ForeignKeyConstraint(
            ["company_id"],
            ["company.id"],
            name=op.f("fk_venue_company_id_company"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_venue")),
    )
    op.create_index(op.f("ix_venue_company_id_name"), "venue", ["company_id", "name"])
    op.create_table(
        "tag",
        sa.Column("id", _ID, nullable=False),
        sa.Column("company_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["company_id"],
            ["company.id"],
            name=op.f("fk_tag_company_id_company"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tag")),
        sa.UniqueConstraint("company_id", "name", name=op.f("uq_tag_company_id_name")),
    )
    op.create_table(
        "beacon",
        sa.Column("id", _ID, nullable=False),
        sa.Column("venue_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("major", sa.Integer(), nullable=False),
        sa.Column("minor", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("proximity", sa.String(length=16), nullable=False),
        sa.Column("x", sa.Integer()),
        sa.Column("y", sa.Integer()),
        sa.Column("color", sa.String(length=64)),
        sa.CheckConstraint(
            "proximity IN ('immediate', 'near', 'far')", name=op.f("ck_beacon_proximity")
        ),
        sa.CheckConstraint("major BETWEEN 0 AND 65535", name=op.f("ck_beacon_major")),
        sa.CheckConstraint("minor BETWEEN 0 AND 65535", name=op.f("ck_beacon_minor")),
        sa.ForeignKeyConstraint(
            ["venue_id"], ["venue.id"], name=op.f("fk_beacon_venue_id_venue"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_beacon")),
        sa.UniqueConstraint("uuid", "major", "minor", name=op.f("uq_beacon_uuid_major_minor")),
    )
    op.create_index(op.f("ix_beacon_venue_id"), "beacon", ["venue_id"])
    op.create_table(
        "beacon_tag",
        sa.Column("beacon_id", _ID, nullable=False),
        sa.Column("tag_id", _ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["beacon_id"],
            ["beacon.id"],
            name=op.f("fk_beacon_tag_beacon_id_beacon"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tag_id"], ["tag.id"], name=op.f("fk_beacon_tag_tag_id_tag"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("beacon_id", "tag_id", name=op.f("pk_beacon_tag")),
    )
    op.create_index(op.f("ix_beacon_tag_tag_id"), "beacon_tag", ["tag_id"])
    op.create_table(
        "geofence",
        sa.Column("id", _ID, nullable=False),
        sa.Column("venue_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("longitude", sa.Double(), nullable=False),
        sa.Column("latitude", sa.Double(), nullable=False),
        sa.Column("radius", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["venue_id"], ["venue.id"], name=op.f("fk_geofence_venue_id_venue"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_geofence")),
    )
    op.create_index(op.f("ix_geofence_venue_id"), "geofence", ["venue_id"])


def _create_campaign_tables() -> None:
    op.create_table(
        "campaign",
        sa.Column("id", _ID, nullable=False),
        sa.Column("venue_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("hash", sa.String(length=255)),
        sa.Column("push", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("template", sa.Text()),
        sa.Column("url", sa.Text()),
        sa.Column("html", sa.Text()),
        sa.Column("background", sa.String(length=64)),
        sa.Column("color", sa.String(length=64)),
        sa.Column("cache", sa.String(length=64), nullable=False),
        sa.Column("delay", _ID, nullable=False),
        sa.Column("start_at", _INSTANT, nullable=False),
        sa.Column("start_offset", sa.Integer(), nullable=False),
        sa.Column("end_at", _INSTANT, nullable=False),
        sa.Column("end_offset", sa.Integer(), nullable=False),
        sa.Column("start_minute", sa.Integer(), nullable=False),
        sa.Column("end_minute", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("weekdays", sa.Integer(), nullable=False),
        sa.Column("nfcs", sa.JSON(), nullable=False),
        sa.Column("qrcodes", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "format IN ('template', 'url', 'html', 'connector')", name=op.f("ck_campaign_format")
        ),
        sa.CheckConstraint("end_minute BETWEEN 0 AND 1440", name=op.f("ck_campaign_end_minute")),
        sa.CheckConstraint(
            "start_minute BETWEEN 0 AND 1439", name=op.f("ck_campaign_start_minute")
        ),
        sa.CheckConstraint("weekdays BETWEEN 0 AND 127", name=op.f("ck_campaign_weekdays")),
        sa.ForeignKeyConstraint(
            ["venue_id"], ["venue.id"], name=op.f("fk_campaign_venue_id_venue"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
    )
    op.create_index(op.f("ix_campaign_venue_id"), "campaign", ["venue_id"])
    op.create_table(
        "campaign_beacon",
        sa.Column("campaign_id", _ID, nullable=False),
        sa.Column("beacon_id", _ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["beacon_id"],
            ["beacon.id"],
            name=op.f("fk_campaign_beacon_beacon_id_beacon"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaign.id"],
            name=op.f("fk_campaign_beacon_campaign_id_campaign"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("campaign_id", "beacon_id", name=op.f("pk_campaign_beacon")),
    )
    op.create_index(op.f("ix_campaign_beacon_beacon_id"), "campaign_beacon", ["beacon_id"])
    op.create_table(
        "campaign_geofence",
        sa.Column("campaign_id", _ID, nullable=False),
        sa.Column("geofence_id", _ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaign.id"],
            name=op.f("fk_campaign_geofence_campaign_id_campaign"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["geofence_id"],
            ["geofence.id"],
            name=op.f("fk_campaign_geofence_geofence_id_geofence"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("campaign_id", "geofence_id", name=op.f("pk_campaign_geofence")),
    )
    op.create_index(op.f("ix_campaign_geofence_geofence_id"), "campaign_geofence", ["geofence_id"])
    op.create_table(
        "campaign_tag",
        sa.Column("campaign_id", _ID, nullable=False),
        sa.Column("tag_id", _ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaign.id"],
            name=op.f("fk_campaign_tag_campaign_id_campaign"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["tag_id"], ["tag.id"], name=op.f("fk_campaign_tag_tag_id_tag"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("campaign_id", "tag_id", name=op.f("pk_campaign_tag")),
    )
    op.create_index(op.f("ix_campaign_tag_tag_id"), "campaign_tag", ["tag_id"])


def _create_index_tables() -> sa.Table:
    op.create_table(
        "outbox",
        sa.Column("id", _ID, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("ref", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sqlite_autoincrement=True,
    )
    return op.create_table(
        "index_state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("catalog", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_index_state_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_index_state")),
    )

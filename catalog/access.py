"""Ends the sessions of accounts whose password or activity changes, in the same transaction.

Also if the company is disabled or enabled. Bulk statements on accounts, which would bypass it, are
refused.
"""

from typing import Any

from sqlalchemy import UpdateBase, delete, event, select
from sqlalchemy.orm import ORMExecuteState, UOWTransaction
from sqlalchemy.orm import Session as OrmSession

from catalog import outbox  # noqa: F401  # its listeners run before those of this module
from catalog.errors import BulkWriteError
from catalog.models import Account, Company, Session
from catalog.outbox import CatalogSession, has_changed

# A key of the SQLAlchemy session's `info`: the hash of the token whose session outlives a new
# password.
KEPT_SESSION = "kept_session"


@event.listens_for(CatalogSession, "do_orm_execute")
def _refuse_bulk_writes(state: ORMExecuteState) -> None:
    statement = state.statement
    table = getattr(statement, "table", None)
    if isinstance(statement, UpdateBase) and table is Account.__table__:
        raise BulkWriteError("write accounts through the session's objects: sessions go on")


@event.listens_for(CatalogSession, "before_flush")
def _end_sessions(session: OrmSession, _context: UOWTransaction, _instances: Any) -> None:
    accounts = _changed_ids(session, Account, "password_hash", "active")
    companies = _changed_ids(session, Company, "active")
    if accounts:
        kept = session.info.get(KEPT_SESSION, "")
        ended = (Session.account_id.in_(accounts), Session.token_hash != kept)
        session.connection().execute(delete(Session).where(*ended))
    if companies:
        of_companies = select(Account.id).where(Account.company_id.in_(companies))
        session.connection().execute(delete(Session).where(Session.account_id.in_(of_companies)))


def _changed_ids(session: OrmSession, model: type[Account | Company], *names: str) -> list[int]:
    return [i.id for i in session.dirty if isinstance(i, model) and has_changed(i, *names)]

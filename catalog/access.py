"""Counts every change of access rights, and ends sessions, in the transaction of the change.

Processes that cache sessions read the count several times a second and empty the cache when the
count has changed. So a session that one process ends is ended in all. `CatalogSession` counts at
every flush. It deletes the sessions of an account when the account's password changes, or when the
account or its company is disabled or enabled. Bulk statements on accounts, which would bypass it,
are refused.
"""

from typing import Any

from sqlalchemy import UpdateBase, delete, event, select, update
from sqlalchemy.orm import ORMExecuteState, UOWTransaction
from sqlalchemy.orm import Session as OrmSession

from catalog import outbox  # noqa: F401  # its listeners run before those of this module
from catalog.errors import BulkWriteError
from catalog.models import AccessState, Account, Company, Session
from catalog.session import CatalogSession, has_changed

# A key of the SQLAlchemy session's `info`: the hash of the token whose session outlives a new
# password.
KEPT_SESSION = "kept_session"
_OF_ACCOUNT = ("email", "password_hash", "active", "permission", "company_id", "company")
_OF_COMPANY = ("active",)


@event.listens_for(CatalogSession, "do_orm_execute")
def _refuse_bulk_writes(state: ORMExecuteState) -> None:
    statement = state.statement
    table = getattr(statement, "table", None)
    if isinstance(statement, UpdateBase) and table is Account.__table__:
        raise BulkWriteError("write accounts through the session's objects: sessions go on")


@event.listens_for(CatalogSession, "before_flush")
def _count_changes(session: OrmSession, _context: UOWTransaction, _instances: Any) -> None:
    _end_sessions(session)
    deleted = any(isinstance(item, Account | Company | Session) for item in session.deleted)
    if deleted or any(_changes_access(item) for item in session.dirty):
        session.connection().execute(update(AccessState).values(revision=AccessState.revision + 1))


def _end_sessions(session: OrmSession) -> None:
    """Delete sessions. An account or company that is enabled again begins without sessions."""
    accounts = _changed_ids(session, Account, "password_hash", "active")
    companies = _changed_ids(session, Company, *_OF_COMPANY)
    if accounts:
        kept = session.info.get(KEPT_SESSION, "")
        ended = (Session.account_id.in_(accounts), Session.token_hash != kept)
        session.connection().execute(delete(Session).where(*ended))
    if companies:
        of_companies = select(Account.id).where(Account.company_id.in_(companies))
        session.connection().execute(delete(Session).where(Session.account_id.in_(of_companies)))


def _changed_ids(session: OrmSession, model: type[Account | Company], *names: str) -> list[int]:
    return [i.id for i in session.dirty if isinstance(i, model) and has_changed(i, *names)]


def _changes_access(item: object) -> bool:
    if isinstance(item, Account):
        return has_changed(item, *_OF_ACCOUNT)
    return isinstance(item, Company) and has_changed(item, *_OF_COMPANY)

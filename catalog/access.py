"""Who may do what: every change of it is counted, in the transaction that makes it.

Processes that remember sessions look at the count several times a second and forget what they
remember when it has moved: so a session ends everywhere, whoever ended it. `CatalogSession` keeps
the count, so that no writer can forget it, and ends the sessions of an account whose password
changes, or that is disabled, alone or with its company. Bulk statements on accounts, which would
pass it by, are refused.
"""

from typing import Any

from sqlalchemy import UpdateBase, delete, event, inspect, select, update
from sqlalchemy.orm import ORMExecuteState, UOWTransaction
from sqlalchemy.orm import Session as OrmSession

from catalog.models import AccessState, Account, Company, Session
from catalog.outbox import CatalogSession, UnwatchedWriteError

# In a session's info: the hash of the token whose session a new password does not end.
KEPT_SESSION = "kept_session"
_OF_ACCOUNT = ("email", "password_hash", "active", "permission", "company_id", "company")
_OF_COMPANY = ("active",)


@event.listens_for(CatalogSession, "do_orm_execute")
def _refuse_bulk_writes(state: ORMExecuteState) -> None:
    statement = state.statement
    table = getattr(statement, "table", None)
    if isinstance(statement, UpdateBase) and table is Account.__table__:
        raise UnwatchedWriteError("write accounts through the session's objects: sessions go on")


@event.listens_for(CatalogSession, "before_flush")
def _count_changes(session: OrmSession, _context: UOWTransaction, _instances: Any) -> None:
    _end_sessions(session)
    gone = any(isinstance(item, Account | Company | Session) for item in session.deleted)
    if gone or any(_changes_access(item) for item in session.dirty):
        session.connection().execute(update(AccessState).values(revision=AccessState.revision + 1))


def _end_sessions(session: OrmSession) -> None:
    """For good: an account that is let in again, or its company, begins without any."""
    accounts = [item.id for item in session.dirty if isinstance(item, Account) and _ends(item)]
    companies = [
        item.id for item in session.dirty if isinstance(item, Company) and _changed(item, "active")
    ]
    if accounts:
        kept = session.info.get(KEPT_SESSION, "")
        gone = (Session.account_id.in_(accounts), Session.token_hash != kept)
        session.connection().execute(delete(Session).where(*gone))
    if companies:
        theirs = select(Account.id).where(Account.company_id.in_(companies))
        session.connection().execute(delete(Session).where(Session.account_id.in_(theirs)))


def _ends(account: Account) -> bool:
    return _changed(account, "password_hash", "active")


def _changes_access(item: object) -> bool:
    if isinstance(item, Account):
        return _changed(item, *_OF_ACCOUNT)
    return isinstance(item, Company) and _changed(item, *_OF_COMPANY)


def _changed(item: object, *names: str) -> bool:
    attributes = inspect(item).attrs
    return any(attributes[name].history.has_changes() for name in names)

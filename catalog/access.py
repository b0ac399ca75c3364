"""Who may do what: every change of it is counted, in the transaction that makes it.

Processes that remember sessions look at the count several times a second and forget what they
remember when it has moved: so a session ends everywhere, whoever ended it. `CatalogSession` keeps
the count, so that no writer can forget it, and ends the sessions of an account whose password
changes. Bulk statements on accounts, which would pass it by, are refused.
"""

from typing import Any

from sqlalchemy import UpdateBase, delete, event, inspect, update
from sqlalchemy.orm import ORMExecuteState, UOWTransaction
from sqlalchemy.orm import Session as OrmSession

from catalog.models import AccessState, Account, Company, Session
from catalog.outbox import CatalogSession, UnwatchedWriteError

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
    renewed = [item.id for item in session.dirty if _has_new_password(item)]
    if renewed:
        session.connection().execute(delete(Session).where(Session.account_id.in_(renewed)))
    gone = any(isinstance(item, Account | Company | Session) for item in session.deleted)
    if gone or any(_changes_access(item) for item in session.dirty):
        session.connection().execute(update(AccessState).values(revision=AccessState.revision + 1))


def _has_new_password(item: object) -> bool:
    return isinstance(item, Account) and _changed(item, "password_hash")


def _changes_access(item: object) -> bool:
    if isinstance(item, Account):
        return _changed(item, *_OF_ACCOUNT)
    return isinstance(item, Company) and _changed(item, *_OF_COMPANY)


def _changed(item: object, *names: str) -> bool:
    attributes = inspect(item).attrs
    return any(attributes[name].history.has_changes() for name in names)

"""The readings of a kind of record: one record of a company, or a page of them by id."""

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Select, bindparam, inspect, select
from sqlalchemy.orm import InstrumentedAttribute

from api.answers import Answer, Record, fill_texts
from api.errors import not_found
from catalog.models import Base
from catalog.reading import Reader, Reading

Columns = Select[*tuple[Any, ...]]
Complete = Callable[[Reader, list[Record]], list[Record]]


class Page(NamedTuple):
    """Up to `limit` records whose ids are greater than `after`."""

    after: int = 0
    limit: int = 500


def columns_of(answer: type[Answer], model: type[Base], *others: Any) -> Columns:
    """A query for the columns of `model` that an answer names, and for `others`."""
    known = inspect(model).column_attrs
    return select(*others, *(getattr(model, name) for name in answer.model_fields if name in known))


class RecordKind:
    """Reads records of one kind, always those of one company.

    `name` is what the error 404 says is missing. `company` is the column with the company's id.
    `venue` is the column with the id of the venue, for records in a venue; reading them takes
    `venue` as a parameter. Null texts of `answer` become empty. `complete` makes the records of
    the rows, with further readings.
    """

    def __init__(
        self,
        name: str,
        answer: type[Answer],
        columns: Columns,
        *,
        key: InstrumentedAttribute[int],
        company: InstrumentedAttribute[int],
        venue: InstrumentedAttribute[int] | None = None,
        complete: Complete = lambda _reader, found: found,
    ) -> None:
        self.name = name
        self._answer = answer
        self._complete = complete
        query = columns.where(company == bindparam("company"))
        if venue is not None:
            query = query.where(venue == bindparam("venue"))
        self._one = Reading(query.where(key == bindparam("id")))
        following = query.where(key > bindparam("after"))
        self._page = Reading(following.order_by(key).limit(bindparam("limit")))

    def one(self, reader: Reader, **values: object) -> Record:
        """The record whose `id` is among the values. Raises ApiError 404."""
        found = self._records(reader, self._one, values)
        if not found:
            raise not_found(self.name)
        return found[0]

    def page(self, reader: Reader, page: Page, **values: object) -> list[Record]:
        """A page of records, in order of id."""
        return self._records(reader, self._page, values | page._asdict())

    def _records(self, reader: Reader, reading: Reading, values: dict[str, object]) -> list[Record]:
        found = reader.rows(reading, **values)
        fill_texts(found, self._answer)
        return self._complete(reader, found)

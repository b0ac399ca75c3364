"""The context of a page: one request of a signed-in user, with the objects that a page needs."""

from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.forms import PostedForm
from api.console.interface import InterfaceClient, InterfaceReply, RefusedError
from api.console.rendering import rendered
from api.console.session import (
    PATH,
    Notice,
    SessionCookie,
    delete_notice,
    read_notice,
    set_notice,
)
from api.console.texts import Translations
from api.permissions import AREAS, services_of
from api.sessions import SignedIn
from catalog.inputs import READ, WRITE

_RECORDS_A_PAGE = 50
_VENUES = 500
_EMPTY = ('"": ', "null: ", "required")  # how faults of fields without a value begin


class RecordPage(NamedTuple):
    """The records of one page of a list; `next_address` is empty on the last one."""

    records: list[dict[str, Any]]
    next_address: str
    is_first: bool


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """A request of a signed-in user; `form` is empty for a GET."""

    request: Request
    texts: Translations
    account: SignedIn
    session: SessionCookie
    interface: InterfaceClient
    form: PostedForm = field(default_factory=lambda: PostedForm({}))

    @property
    def now(self) -> datetime:
        """The present time, in UTC."""
        return services_of(self.request).clock()

    def may_read(self, record: str) -> bool:
        """Whether to show links to records of this kind. (/v2 checks the permission again.)"""
        return self.account.level(AREAS[record]) >= READ

    def may_write(self, record: str) -> bool:
        """Whether to show forms that change records of this kind."""
        return self.account.level(AREAS[record]) >= WRITE

    def path_number(self, name: str) -> int:
        """A numeric parameter of the path."""
        return int(self.request.path_params[name])

    def query(self, name: str) -> str:
        """A query parameter; empty if it is absent."""
        return self.request.query_params.get(name, "")

    def query_number(self, name: str) -> int:
        """A query parameter that is a number; 0 if it is absent or invalid."""
        text = self.query(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0

    def page(self, template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
        """Render a template, or a block of it (`overview.html#figures`).

        A whole page also says what the form before it has done, once.
        """
        done = None if "#" in template else read_notice(self.request)
        common = {
            "context": self,
            "email": self.account.email,
            "forgery_token": self.session.forgery_token,
            "path": self.request.url.path,
            "done": done,
        }
        answer = rendered(template, self.texts, common | values, status)
        if done is not None:
            delete_notice(answer)
        return answer

    def form_page(
        self,
        template: str,
        record: str,
        values: dict[str, Any],
        refusal: InterfaceReply | None = None,
        **more: Any,
    ) -> Response:
        """Render the form of a record, with the faults of the values if they were refused."""
        return self.page(
            template,
            HTTPStatus.OK if refusal is None else refusal.status,
            values=values,
            faults={} if refusal is None else self._faults(refusal),
            message="" if refusal is None else refusal.message,
            may_write=self.may_write(record),
            **more,
        )

    def _faults(self, refusal: InterfaceReply) -> dict[str, str]:
        """The faults by field; an empty field has its own words in the language of the page."""
        return {
            place: self.texts.get(f"enter_{place}" if f"enter_{place}" in self.texts else "enter")
            if fault.startswith(_EMPTY)
            else fault
            for place, fault in refusal.fields.items()
        }

    def redirect(self, path: str, done: Notice | None = None) -> Response:
        """Redirect to another page of the console, which says what a form has done."""
        answer = RedirectResponse(f"{PATH}{path}", HTTPStatus.SEE_OTHER)
        if done is not None:
            set_notice(answer, self.request, done)
        return answer

    async def change(
        self,
        method: str,
        path: str,
        then: str,
        body: dict[str, Any] | None = None,
        *,
        done: Notice | None = None,
    ) -> Response:
        """Call an operation, and redirect to the page `then`. Raises RefusedError."""
        reply = await self.interface.call(method, path, body)
        if not reply.is_success:
            raise RefusedError(reply.status, reply.message)
        return self.redirect(then, done)

    async def venues(self) -> list[dict[str, Any]]:
        """The venues to choose from; none if the account may not read them."""
        if not self.may_read("venue"):
            return []
        found: list[dict[str, Any]] = await self.interface.get("/region", limit=_VENUES)
        return found

    async def record_page(
        self, path: str, *, by: str = "after", size: int = _RECORDS_A_PAGE, **query: object
    ) -> RecordPage:
        """A page of the list that an operation returns. Raises RefusedError.

        The query parameter `by` says where the page begins. One record more than is shown is read,
        to see whether there is another page.
        """
        place = self.query_number(by)
        begin = place or (2**63 - 1 if by == "before" else 0)
        found = await self.interface.get(path, **query, **{by: begin, "limit": size + 1})
        shown = found[:size]
        if len(found) <= size:
            return RecordPage(shown, "", not place)
        others = {name: value for name, value in self.request.query_params.items() if name != by}
        address = f"{self.request.url.path}?{urlencode(others | {by: shown[-1]['id']})}"
        return RecordPage(shown, address, not place)

"""One request of a signed-in visitor, with what a page needs to answer it."""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.forms import PostedForm
from api.console.interface import InterfaceClient
from api.console.rendering import rendered
from api.console.session import PATH, SessionCookie
from api.console.words import PageWords
from api.permissions import AREAS
from api.sessions.check import SignedIn
from catalog.fields.company import READ, WRITE


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A request; `form` is empty where nothing was posted."""

    request: Request
    words: PageWords
    account: SignedIn
    session: SessionCookie
    interface: InterfaceClient
    form: PostedForm = field(default_factory=lambda: PostedForm({}))

    def may_read(self, record: str) -> bool:
        """Whether to offer what shows records of this kind; /v2 decides when it is used."""
        return self.account.level(AREAS[record]) >= READ

    def may_write(self, record: str) -> bool:
        """Whether to offer what changes them."""
        return self.account.level(AREAS[record]) >= WRITE

    def number(self, name: str) -> int:
        """A number of the path."""
        return int(self.request.path_params[name])

    def query(self, name: str) -> str:
        """What the address says, or nothing."""
        return self.request.query_params.get(name, "")

    def count(self, name: str) -> int:
        """A number of the address; 0 for anything else."""
        text = self.query(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0

    def page(self, template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
        """The page, or the part of one, that a template makes."""
        return rendered(template, self.words, self._common() | values, status)

    def leave(self, path: str) -> Response:
        """On to another page of the console, after something was done."""
        return RedirectResponse(f"{PATH}{path}", HTTPStatus.SEE_OTHER)

    def _common(self) -> dict[str, Any]:
        return {
            "visit": self,
            "email": self.account.email,
            "forgery_token": self.session.forgery_token,
            "path": self.request.url.path,
        }

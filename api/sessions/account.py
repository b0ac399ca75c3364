"""Who makes a request."""

from dataclasses import dataclass
from datetime import datetime

from catalog.fields.company import NOTHING


@dataclass(frozen=True, kw_only=True)
class SignedIn:
    """An account with a session that was valid when it was looked up; `valid` is its end."""

    account_id: int
    company_id: int
    email: str
    permission: dict[str, int]
    valid: datetime

    def level(self, area: str) -> int:
        """The account's level in an area."""
        return self.permission.get(area, NOTHING)

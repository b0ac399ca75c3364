"""Answers about a connector's calls: past calls, and a trial call."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from api.answers import Answer, Count, Id, Text, Timestamp
from connectors.model import CallFault, Content
from connectors.reports import BreakerStatus, Pairs

Outcome = Annotated[
    str,
    Field(
        description="The outcome, or the reason of the failure.",
        json_schema_extra={
            "enum": ["published", "declined", *(fault.value for fault in CallFault)]
        },
    ),
]
Detail = Annotated[str, Field(description="Details of a failure.")]
Milliseconds = Annotated[float, AfterValidator(lambda seconds: round(seconds, 3))]
Seconds = Annotated[Milliseconds | None, Field(description="null if the service was not called.")]


class BreakerAnswer(Answer):
    """A connectors.reports.BreakerSummary."""

    state: BreakerStatus
    calls: Count = Field(description="The number of last calls that it considers; 0 while open.")
    failures: Count = Field(description="How many of these calls failed.")
    seconds: Milliseconds = Field(
        validation_alias="wait", description="The seconds until it permits a trial call."
    )


class CallAnswer(Answer):
    """A connectors.reports.PastCall."""

    id: str = Field(description="The call's idempotency-key, and its notification's id.")
    create_on: Annotated[
        Timestamp, BeforeValidator(lambda seconds: datetime.fromtimestamp(seconds, UTC))
    ] = Field(validation_alias="at")
    campaign_id: Id = Field(validation_alias="campaign")
    outcome: Outcome
    detail: Detail
    status: int | None = Field(description="The reply's status; null if there was no reply.")
    seconds: Seconds
    tries: Count


class ConnectorCallsAnswer(Answer):
    """A connectors.reports.CallHistory."""

    breaker: BreakerAnswer
    calls: list[CallAnswer]


class HeaderAnswer(Answer):
    key: str
    value: str


def _headers(pairs: Pairs) -> list[dict[str, str]]:
    return [{"key": name, "value": value} for name, value in pairs]


Headers = Annotated[list[HeaderAnswer], BeforeValidator(_headers)]


class TrialRequestAnswer(Answer):
    method: str
    url: str
    headers: Headers
    body: str
    left_out: list[str] = Field(description="Parameters that are not sent.")


class TrialReplyAnswer(Answer):
    status: int
    headers: Headers
    body: str


class TrialNotificationAnswer(Answer):
    """The notification of a trial. An empty text stands for the campaign's own."""

    title: Text
    push: Text
    format: Literal["template", "url", "html"]
    content: str


class ConnectorTrialAnswer(Answer):
    """A connectors.reports.Trial: the request, the reply, and the result of a real call."""

    outcome: Outcome
    detail: Detail
    seconds: Seconds
    request: TrialRequestAnswer | None
    reply: TrialReplyAnswer | None
    notification: Annotated[
        TrialNotificationAnswer | None,
        BeforeValidator(lambda result: result if isinstance(result, Content) else None),
    ] = Field(validation_alias="result")

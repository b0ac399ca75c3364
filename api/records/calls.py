"""A connector's calls: those that were made, and one to try it."""

from datetime import UTC, datetime

from api.answers import timestamp
from api.records.page import Record
from connectors.model import Content
from connectors.reports import CallHistory, Pairs, Trial


def history(told: CallHistory) -> Record:
    """The breaker and the last calls."""
    breaker = told.breaker
    return {
        "breaker": {
            "state": breaker.state,
            "calls": breaker.calls,
            "failures": breaker.failures,
            "seconds": round(breaker.wait, 3),
        },
        "calls": [
            {
                "id": call.id,
                "create_on": timestamp(datetime.fromtimestamp(call.at, UTC)),
                "campaign_id": call.campaign,
                "outcome": call.outcome,
                "detail": call.detail,
                "status": call.status,
                "seconds": _milliseconds(call.seconds),
                "tries": call.tries,
            }
            for call in told.calls
        ],
    }


def trial(told: Trial) -> Record:
    """What was sent, what came back, and what it would have led to."""
    request, reply, result = told.request, told.reply, told.result
    return {
        "outcome": told.outcome,
        "detail": told.detail,
        "seconds": _milliseconds(told.seconds),
        "request": request and {**request._asdict(), "headers": _pairs(request.headers)},
        "reply": reply and {**reply._asdict(), "headers": _pairs(reply.headers)},
        "notification": _content(result) if isinstance(result, Content) else None,
    }


def _content(content: Content) -> Record:
    """Empty where the campaign's own stands."""
    return {
        "title": content.title or "",
        "push": content.push or "",
        "format": content.format,
        "content": content.content,
    }


def _pairs(pairs: Pairs) -> list[Record]:
    return [{"key": name, "value": value} for name, value in pairs]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)

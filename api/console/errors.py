"""The errors that end the rendering of a page."""


class RefusedError(Exception):
    """An operation, or the console itself, refused the request; a page shows the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class OversizedAnswerError(Exception):
    """An answer is larger than a page can show, because the page requested too much."""

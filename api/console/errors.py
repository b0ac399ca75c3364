"""What ends the rendering of a page."""


class RefusedError(Exception):
    """An operation, or the console itself, refused; shown as a page with the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class OversizedAnswerError(Exception):
    """An operation answered more than a page can show: a fault of the page, which asked for it."""

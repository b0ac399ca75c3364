"""The errors that the catalog raises itself. Errors of SQL and Redis pass through as they are."""


class CatalogError(Exception):
    """The base of all errors of the catalog."""


class DatabaseUrlError(CatalogError, ValueError):
    """A database URL cannot be used. The message never holds the URL: it may carry a password."""


class RedisUrlError(CatalogError, ValueError):
    """A Redis URL cannot be used. The message never holds the URL: it may carry a password."""


class SecretKeyError(CatalogError, ValueError):
    """SECRET_KEY is missing or cannot be used. The message says what to do and holds no key."""


class DecryptionError(CatalogError):
    """A stored secret was encrypted with a key that SECRET_KEY does not hold."""


class MigrationError(CatalogError, ValueError):
    """The schema cannot be upgraded. Nothing has changed."""


class LimitError(CatalogError):
    """A change would exceed a limit, which the message names. Nothing may be committed.

    `field` is the field of the request at fault, "" if there is none.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class IndexWriteError(CatalogError):
    """The index was not written: another writer has written it, or Redis has lost writes.

    The outbox still holds the changes; try again.
    """

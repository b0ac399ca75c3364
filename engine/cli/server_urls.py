"""What commands share when a server's setting cannot work: one line that names it."""

from collections.abc import Iterator
from contextlib import contextmanager

from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings


@contextmanager
def url_faults() -> Iterator[None]:
    """Turn a URL that cannot work into a SettingsError that names its setting."""
    from catalog.errors import DatabaseUrlError, RedisUrlError

    try:
        yield
    except RedisUrlError as error:
        raise SettingsError(f"{PREFIX}REDIS_URL: {error}") from None
    except DatabaseUrlError as error:
        raise SettingsError(f"{PREFIX}DATABASE_URL: {error}") from None


async def refuse_wrong_servers(settings: Settings) -> None:
    """Raise SettingsError for a Redis that answers and shows that REDIS_URL cannot work."""
    from catalog.redis_connection import probe_redis

    with url_faults():
        await probe_redis(settings.redis_url.get_secret_value())

"""Writes companies, and what they have besides places."""

import asyncio
from typing import Any

from catalog.fields.company import ALL_PERMISSIONS, AREAS, NOTHING
from catalog.load.document import DocumentCompany, DocumentRecord
from catalog.load.stored import Stored
from catalog.load.writing import Writer
from catalog.models import Account, Application, Company, Connector, Device
from catalog.passwords import hash_password
from catalog.secrets import MISSING_KEY, Cipher, DecryptionError, SecretKeyError


async def write_company(writer: Writer, item: DocumentCompany, stored: Stored) -> Company:
    """The company and its accounts, applications, connector and devices."""
    company = stored.company
    if company is None:
        company = writer.create("companies", Company(**item.values, create_on=writer.now))
    else:
        writer.update("companies", company, item.values)
    for account in item.accounts:
        known = stored.accounts.get(account.values["email"])
        await _write_account(writer, company, dict(account.values), known)
    for application in item.applications:
        _write_application(writer, company, application, stored)
    for device in item.devices:
        _write_device(writer, company, device, stored)
    if item.connector is not None:
        _write_connector(writer, company, item.connector, stored.connector)
    return company


async def _write_account(
    writer: Writer, company: Company, values: dict[str, Any], account: Account | None
) -> None:
    password = values.pop("password")
    given = values.pop("permission", None)
    if account is None:
        levels = ALL_PERMISSIONS if given is None else dict.fromkeys(AREAS, NOTHING) | given
        hashed = await asyncio.to_thread(hash_password, password)
        account = Account(**values, permission=levels, password_hash=hashed, create_on=writer.now)
        account.company = company
        writer.create("accounts", account)
        return
    # Its holder may have chosen another password since: a file does not take it back.
    writer.update("accounts", account, values | {"permission": account.permission | (given or {})})


def _write_application(
    writer: Writer, company: Company, item: DocumentRecord, stored: Stored
) -> None:
    application = stored.applications.get(item.values["api_key"])
    if application is None:
        writer.create("applications", Application(**item.values, company=company))
    else:
        writer.update("applications", application, item.values)


def _write_device(writer: Writer, company: Company, item: DocumentRecord, stored: Stored) -> None:
    device = stored.devices.get(item.values["udid"])
    if device is None:
        device = Device(**item.values, create_on=writer.now, update_on=writer.now)
        device.company = company
        writer.create("devices", device)
    else:
        writer.update("devices", device, item.values, update_on=writer.now)


def _write_connector(
    writer: Writer, company: Company, item: DocumentRecord, connector: Connector | None
) -> None:
    if writer.cipher is None:
        raise SecretKeyError(MISSING_KEY)
    values = encrypted(writer.cipher, connector, item.values)
    if connector is None:
        writer.create("connectors", Connector(**values, company=company))
    else:
        writer.update("connectors", connector, values)


def encrypted(cipher: Cipher, stored: Connector | None, values: dict[str, Any]) -> dict[str, Any]:
    """The values with parameters and secret as tokens; a stored token that says the same stays."""
    tokens = dict(values)
    for name in ("parameters", "secret"):
        token = getattr(stored, name, None)
        plain = values.get(name)
        if plain is not None:
            tokens[name] = token if _says(cipher, token, plain) else cipher.encrypt(plain)
    return tokens


def _says(cipher: Cipher, token: str | None, plain: str) -> bool:
    try:
        return token is not None and cipher.decrypt(token) == plain
    except DecryptionError:
        return False

"""Writes companies and their accounts, applications, connectors and devices."""

import asyncio
from typing import Any

from catalog.errors import DecryptionError, SecretKeyError
from catalog.fields.company import ALL_PERMISSIONS, AREAS, NOTHING
from catalog.load.document import DocumentCompany
from catalog.load.record_writer import RecordWriter
from catalog.load.stored_records import StoredCompany
from catalog.models import Account, Application, Company, Connector, Device
from catalog.passwords import hash_password
from catalog.secrets import MISSING_SECRET_KEY, Cipher


async def write_company(
    writer: RecordWriter, item: DocumentCompany, stored: StoredCompany
) -> Company:
    """Write the company and its accounts, applications, connector and devices."""
    now = {"create_on": writer.now}
    company = writer.save("companies", stored.company, Company, item.values, on_create=now)
    owner = {"company": company}
    for account in item.accounts:
        await _write_account(writer, company, dict(account.values), stored)
    for each in item.applications:
        known = stored.applications.get(each.values["api_key"])
        writer.save("applications", known, Application, each.values, on_create=owner)
    seen = {"update_on": writer.now}
    for each in item.devices:
        device = stored.devices.get(each.values["udid"])
        new = owner | now | seen
        writer.save("devices", device, Device, each.values, on_create=new, on_change=seen)
    if item.connector is not None:
        if writer.cipher is None:
            raise SecretKeyError(MISSING_SECRET_KEY)
        values = encrypted(writer.cipher, stored.connector, item.connector.values)
        writer.save("connectors", stored.connector, Connector, values, on_create=owner)
    return company


async def _write_account(
    writer: RecordWriter, company: Company, values: dict[str, Any], stored: StoredCompany
) -> None:
    password = values.pop("password")
    given = values.pop("permission", None)
    account = stored.accounts.get(values["email"])
    if account is not None:
        # The account holder may have changed the password: a file does not undo that.
        values["permission"] = account.permission | (given or {})
        writer.save("accounts", account, Account, values)
        return
    levels = ALL_PERMISSIONS if given is None else dict.fromkeys(AREAS, NOTHING) | given
    new = {
        "company": company,
        "permission": levels,
        "password_hash": await asyncio.to_thread(hash_password, password),
        "create_on": writer.now,
    }
    writer.save("accounts", None, Account, values, on_create=new)


def encrypted(cipher: Cipher, stored: Connector | None, values: dict[str, Any]) -> dict[str, Any]:
    """The values with `parameters` and `secret` encrypted; an unchanged value keeps its token."""
    tokens = dict(values)
    for name in ("parameters", "secret"):
        token = getattr(stored, name, None)
        plain = values.get(name)
        if plain is not None:
            tokens[name] = token if _decrypts_to(cipher, token, plain) else cipher.encrypt(plain)
    return tokens


def _decrypts_to(cipher: Cipher, token: str | None, plain: str) -> bool:
    try:
        return token is not None and cipher.decrypt(token) == plain
    except DecryptionError:
        return False

"""`proximity catalog load FILE`: loads one JSON document into the catalog, all of it or nothing.

The document is `{"companies": [...]}` with the interface's field names, in every spelling that
requests may use. Existing records are found by company name, e-mail, api_key, udid, venue name in
its company, triple, and campaign or geofence name in its venue. Records and fields that the
document does not name are not changed. Loading the same document twice changes nothing the second
time.

The document needs fewer fields than the interface: a new campaign's weekdays default to true and
its hours to 00:00 and 24:00. A list (`tags`, `beacons`, `geofencings`) replaces the whole stored
list. `password` is used only for a new account. `permission` defaults to all levels; if it is
given, areas that it omits are 0 on a new account and unchanged on an existing one.
"""

from catalog.load.loader import LoadError, load_document
from catalog.load.record_writer import LoadSummary, RecordCount

__all__ = ["LoadError", "LoadSummary", "RecordCount", "load_document"]

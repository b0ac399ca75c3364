"""`proximity catalog load FILE`: one JSON document into the catalog, all of it or nothing.

The document is `{"companies": [...]}` with the interface's field names in every spelling that
requests may use. Records are found again by company name, e-mail, api_key, udid, venue name in
its company, triple, and campaign or geofence name in its venue; what the document does not name
stays as it is, and so does a field that it leaves out. Loading the same document twice changes
nothing the second time.

Less is required than by the interface: a campaign's weekdays default to true and its hours to
00:00 and 24:00, when it is created. A list (`tags`, `beacons`, `geofencings`) replaces the whole
stored one. An account's `password` is that of a new one; an old one keeps what it has. `permission`
defaults to everything; where it is given, areas that it leaves out are 0 on a new account and stay
as they are on an old one.
"""

from catalog.load.loader import LoadError, load_document
from catalog.load.writing import LoadSummary, RecordCount

__all__ = ["LoadError", "LoadSummary", "RecordCount", "load_document"]

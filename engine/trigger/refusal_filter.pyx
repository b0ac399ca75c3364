# cython: language_level=3, boundscheck=False, wraparound=False
"""Finds detections that fire nothing, in the JSON of their records.

Nearly all detections of a busy topic fire nothing: their device was sent the campaign already, is
too far away, or there is no campaign. This module finds that out without decoding them, and makes
no object of a detection. It comes to the same decisions as detections.py, `decide_from_memory`
(grants.py), which tests/property/test_refusal_filter.py compares. What it
cannot decide for certain it leaves to them.

Cython compiles it while the project is installed. Without a compiler the trigger does without it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from libc.math cimport pow
from libc.string cimport memcmp, memcpy

from engine.trigger.detection_scan cimport DetectionText, Text, number_of, scan_detection

from engine.kafka.detections import beacon_key
from engine.kafka.messages import EARLIEST_MS, LATEST_MS, parse_text
from rules.decision import UNKNOWN_BEACON
from rules.parsing import DEFAULT_TX_POWER, IMMEDIATE_BELOW, NEAR_UP_TO, USUAL_NAMES

cdef extern from "Python.h":
    int PyUnicode_1BYTE_KIND
    object PyUnicode_FromKindAndData(int kind, const void *buffer, Py_ssize_t size)

cdef enum:
    _MOST_PLACES = 65_536
    _EVERY_ZONE = -1  # a reach
    _LONGEST_UUID = 36
    _MOST_DIGITS = 5
    _LONGEST_TRIPLE = 49  # of uuid, major and minor, each with a NUL
    _LONGEST_TIMESTAMP = 40
    _MOST_ZONE_NAMES = 64
    _LONGEST_ZONE_NAME = 32
    _UNREADABLE_ZONE = -2
    # The numbers of rules.model.Zone.
    _UNKNOWN = 0
    _IMMEDIATE = 1
    _NEAR = 2
    _FAR = 3

cdef double _DEFAULT_TX_POWER = DEFAULT_TX_POWER
cdef double _IMMEDIATE_BELOW = IMMEDIATE_BELOW
cdef double _NEAR_UP_TO = NEAR_UP_TO
cdef long long _LATEST_MS = LATEST_MS
cdef double _EARLIEST_MS = EARLIEST_MS
cdef double _UNREADABLE = -1.0  # a time before 1970 is left to the decoder, too


cdef struct _ZoneName:
    char text[_LONGEST_ZONE_NAME]
    Py_ssize_t size
    int zone


cdef _ZoneName _ZONE_NAMES[_MOST_ZONE_NAMES]
cdef int _zone_names = 0

if len(USUAL_NAMES) > _MOST_ZONE_NAMES or max(map(len, USUAL_NAMES)) > _LONGEST_ZONE_NAME:
    raise ImportError("rules.parsing has more names than refusal_filter.pyx has room for")
for _name, _zone in USUAL_NAMES.items():
    _bytes = _name.encode()
    memcpy(_ZONE_NAMES[_zone_names].text, <const char *>_bytes, len(_bytes))
    _ZONE_NAMES[_zone_names].size = len(_bytes)
    _ZONE_NAMES[_zone_names].zone = _zone
    _zone_names += 1


cdef class _Place:
    """A beacon as the rules see it; `target` is None for a triple that is no beacon.

    `written` has its triples, as devices write them.
    """

    cdef object target, refusal, refusals, phase, none_granted
    cdef tuple caps
    cdef list written
    cdef int reach
    cdef double since, until

    cdef _enter(self, phase):
        self.phase, self.caps, self.none_granted = phase, phase.caps, phase.none_granted
        self.since, self.until = phase.since, phase.until

    cdef bint _all_throttled(self, dict claims, double at) except -1:
        """Whether the claims deny every open campaign to a detection at this time."""
        cdef PyObject *held
        cdef double since, delay
        cdef tuple cap
        for cap in self.caps:
            number, delay = cap[0], cap[1]
            # Those of connector campaigns are remembered apart (claim_memory.py).
            held = PyDict_GetItem(claims, -number if cap[2].format == "connector" else number)
            if held == NULL:
                return False
            since = <double><object>held
            if not since < at < since + delay:
                return False
        return True


cdef class RefusalFilter:
    """Refuses detections for one process.

    `max_age` in seconds and `path_loss_exponent` are those of the settings.
    """

    # By the triple as written, and by its key. Many triples may be one beacon's.
    cdef dict _places, _by_key, _known
    cdef double _max_age, _path_loss_exponent
    cdef _Clock _clock

    def __init__(self, cache, double max_age, double path_loss_exponent):
        self._places, self._by_key, self._known = {}, {}, cache.known
        cache.on_removal = self._forget
        self._max_age = max_age
        self._path_loss_exponent = path_loss_exponent
        self._clock = _Clock()

    def split(self, list records, remembered, double now):
        """The records that must be decoded, and the decisions that refuse the others."""
        cdef list others = [], refused = []
        cdef dict claims
        cdef double oldest = now - self._max_age, newest = now + self._max_age
        remembered.forget_expired(now)
        if len(self._places) > _MOST_PLACES:
            self._places.clear()
            self._by_key.clear()
        claims = remembered.young
        for record in records:
            decision = self._refusal(record, claims, oldest, newest)
            if decision is None:
                others.append(record)
            else:
                refused.append(decision)
        return others, refused

    cdef object _refusal(self, record, dict claims, double oldest, double newest):
        """The decision that refuses the record's detection, or None.

        The checks and their order are those of `decide`.
        """
        cdef DetectionText text
        cdef _Place place
        cdef double at
        cdef int zone
        value = record.value
        if type(value) is not bytes:
            return None
        if not scan_detection(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), &text):
            return None
        zone = _zone_of(&text, self._path_loss_exponent)
        at = record.timestamp / 1000 if text.detected_at.size < 0 else 0
        at = self._clock.detected_at(&text, at)
        place = self._place(&text)
        if place is None or zone == _UNREADABLE_ZONE or at < 0:
            return None
        if place.target is None:
            return UNKNOWN_BEACON
        if place.refusal is not None:
            return place.refusal
        if place.reach != _EVERY_ZONE:
            if zone == _UNKNOWN:
                return place.refusals.unknown_proximity
            if zone > place.reach:
                return place.refusals.too_far
        if at < oldest:
            return place.refusals.stale
        if at > newest:
            return place.refusals.future
        return self._throttled(place, claims, &text.udid, at)

    cdef object _throttled(self, _Place place, dict claims, Text *udid, double at):
        cdef PyObject *found
        phase = place.target.current
        if place.phase is not phase:
            place._enter(phase)
        if not place.since <= at < place.until:
            return None
        if not place.caps:
            return place.none_granted
        found = PyDict_GetItem(claims, _text_of(udid))
        if found != NULL and place._all_throttled(<dict>found, at):
            return place.none_granted
        return None

    cdef _Place _place(self, DetectionText *text):
        cdef PyObject *found
        written = _triple_of(text)
        if written is None:
            return None
        found = PyDict_GetItem(self._places, written)
        return self._found_place(written) if found == NULL else <_Place>found

    cdef _Place _found_place(self, bytes written):
        """The place of a triple that was not met before; None if the index must be asked."""
        cdef PyObject *found
        cdef _Place place
        key = _key_of(written)
        if key is None or key not in self._known:
            return None
        found = PyDict_GetItem(self._by_key, key)
        place = self._new_place(key) if found == NULL else <_Place>found
        place.written.append(written)
        self._places[written] = place
        return place

    cdef _Place _new_place(self, key):
        cdef _Place place = _Place.__new__(_Place)
        beacon = self._known[key]
        place.written = []
        if beacon is not None:
            place.target = target = beacon.target
            place.refusal, place.refusals = target.refusal, target.refusals
            place.reach = _EVERY_ZONE if target.reach is None else target.reach
        self._by_key[key] = place
        return place

    def _forget(self, key):
        """The cache has removed a beacon: keep nothing of it."""
        cdef _Place place = self._by_key.pop(key, None)
        if place is not None:
            for written in place.written:
                del self._places[written]


cdef object _text_of(Text *text):
    """The text as str; it is ASCII."""
    return PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, text.at, text.size)


cdef bytes _triple_of(DetectionText *text):
    """uuid, major and minor as written, each with a NUL; None if this is no triple."""
    cdef char triple[_LONGEST_TRIPLE]
    cdef Py_ssize_t size
    if text.uuid.size > _LONGEST_UUID:
        return None
    if text.major.size > _MOST_DIGITS or text.minor.size > _MOST_DIGITS:
        return None
    size = _append(triple, 0, &text.uuid)
    size = _append(triple, size, &text.major)
    size = _append(triple, size, &text.minor)
    return PyBytes_FromStringAndSize(triple, size)


cdef object _key_of(bytes triple):
    """The key of a triple as written; None if the decoder refuses it."""
    uuid, major, minor, _ = triple.decode().split("\0")
    try:
        return beacon_key(uuid, major, minor)
    except ValueError:
        return None


cdef int _zone_of(DetectionText *text, double path_loss_exponent) noexcept:
    """The number of the zone, or _UNREADABLE_ZONE."""
    cdef double rssi, power, metres
    if text.zone.size >= 0:
        return _zone_named(&text.zone)
    rssi = number_of(&text.rssi)
    if not rssi < 0:
        return _UNKNOWN
    power = number_of(&text.tx_power) if text.tx_power.size >= 0 else _DEFAULT_TX_POWER
    metres = pow(10.0, (power - rssi) / (10 * path_loss_exponent))
    if metres < _IMMEDIATE_BELOW:
        return _IMMEDIATE
    return _NEAR if metres <= _NEAR_UP_TO else _FAR


cdef int _zone_named(Text *name) noexcept:
    cdef Py_ssize_t i
    for i in range(_zone_names):
        if name.size == _ZONE_NAMES[i].size and not memcmp(name.at, _ZONE_NAMES[i].text, name.size):
            return _ZONE_NAMES[i].zone
    return _UNREADABLE_ZONE


cdef class _Clock:
    """Reads the times of detections, and remembers the last text: devices report whole seconds, so
    the next record often has the same."""

    cdef char _text[40]
    cdef Py_ssize_t _size
    cdef double _at

    def __init__(self):
        self._size = -1

    cdef double detected_at(self, DetectionText *text, double arrived_at) except? -2.0:
        """Epoch seconds, below 0 if the decoder must read it; without a time `arrived_at`."""
        cdef Text written = text.detected_at
        cdef double milliseconds
        if written.size < 0:
            return arrived_at if arrived_at >= 0 else _UNREADABLE
        if text.detected_at_is_number:
            milliseconds = number_of(&written)
            if milliseconds < _EARLIEST_MS or milliseconds > _LATEST_MS:
                return _UNREADABLE
            return milliseconds / 1000
        if written.size > _LONGEST_TIMESTAMP:
            return _UNREADABLE
        if written.size != self._size or memcmp(written.at, self._text, written.size):
            try:
                self._at = parse_text(_text_of(&written))
            except ValueError:
                return _UNREADABLE
            memcpy(self._text, written.at, written.size)
            self._size = written.size
        return self._at if self._at >= 0 else _UNREADABLE


cdef inline Py_ssize_t _append(char *triple, Py_ssize_t size, Text *part) noexcept:
    memcpy(triple + size, part.at, part.size)
    triple[size + part.size] = 0
    return size + part.size + 1

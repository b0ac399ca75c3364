# cython: language_level=3, boundscheck=False, wraparound=False
"""Recognises the detections of devices that stay where they are throttled, in their records' JSON.

Where devices dwell, nearly all detections are such ones, and their decision stands already
(standing.py). This module finds it without decoding them and makes no object of a detection. What
it does not recognise for certain it leaves to the pipeline, which comes to the same decisions.

Cython compiles it while the project is installed. Without a compiler the trigger does without it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.string cimport memcmp, memcpy

from engine.kafka.detection_scan cimport DetectionText, Text, scan_detection

from engine.kafka.detections import beacon_key
from engine.kafka.timestamps import LATEST_MS, parse_text
from rules.proximity import USUAL_NAMES

cdef extern from "Python.h":
    int PyUnicode_1BYTE_KIND
    object PyUnicode_FromKindAndData(int kind, const void *buffer, Py_ssize_t size)

cdef enum:
    _LONGEST_UDID = 255
    _LEAST_UUID = 32
    _LONGEST_UUID = 36
    _MOST_DIGITS = 5
    _LONGEST_TRIPLE = 48  # _LONGEST_UUID + 2 * (1 + _MOST_DIGITS)
    _LONGEST_TIMESTAMP = 40
    _MOST_PLACES = 65_536

cdef double _UNREADABLE = -1.0
cdef long long _LATEST_MS = LATEST_MS
cdef dict _ZONES = USUAL_NAMES


cdef class _Place:
    """What is decided at a beacon; `phase` is the one from which the other fields were taken."""

    cdef object target, phase, mark, none_granted
    cdef double since


cdef class DwellFilter:
    """Finds standing decisions for one process. `max_age` in seconds, as for `decide`."""

    # By the triple as written. Emptied when the cache removes a beacon, so that it keeps none.
    cdef dict _places
    cdef object _cache, _removals
    cdef double _max_age
    cdef char _last_text[_LONGEST_TIMESTAMP]
    cdef Py_ssize_t _last_size
    cdef double _last_at

    def __init__(self, cache, double max_age):
        self._places = {}
        self._cache = cache
        self._removals = None
        self._max_age = max_age
        self._last_size = -1

    def split(self, list records, remembered, double now):
        """The records without a standing decision, and the decisions of the others."""
        cdef list others = [], standing = []
        cdef dict decisions
        cdef double oldest = now - self._max_age, newest = now + self._max_age
        remembered.forget_expired(now)
        decisions = remembered.standing
        if not decisions:
            return records, standing
        if self._removals != self._cache.removals or len(self._places) > _MOST_PLACES:
            self._places.clear()
            self._removals = self._cache.removals
        for record in records:
            decision = self._standing(record, decisions, oldest, newest)
            if decision is None:
                others.append(record)
            else:
                standing.append(decision)
        return others, standing

    cdef object _standing(self, record, dict decisions, double oldest, double newest):
        """The standing decision of a record, or None. The checks are those of `decider`."""
        cdef DetectionText text
        cdef PyObject *found
        cdef PyObject *zone
        cdef _Place place
        cdef double at
        value = record.value
        if type(value) is not bytes:
            return None
        if not scan_detection(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), &text):
            return None
        if text.udid.size > _LONGEST_UDID:
            return None
        found = PyDict_GetItem(decisions, _str(&text.udid))
        if found == NULL:
            return None
        place = self._place(&text)
        zone = PyDict_GetItem(_ZONES, _str(&text.zone))
        if place is None or zone == NULL:
            return None
        stands = <object>found
        if stands.phase is not place.mark or stands.zone is not <object>zone:
            return None
        at = self._detected_at(record, &text)
        if at == _UNREADABLE or not (oldest <= at <= newest):
            return None
        return place.none_granted if place.since <= at < <double>stands.until else None

    cdef _Place _place(self, DetectionText *text):
        cdef char triple[_LONGEST_TRIPLE]
        cdef Py_ssize_t size
        cdef PyObject *found
        cdef _Place place
        if not _LEAST_UUID <= text.uuid.size <= _LONGEST_UUID:
            return None
        if text.major.size > _MOST_DIGITS or text.minor.size > _MOST_DIGITS:
            return None
        size = _append(triple, 0, &text.uuid)
        size = _append(triple, size, &text.major)
        size = _append(triple, size, &text.minor)
        written = PyBytes_FromStringAndSize(triple, size)
        found = PyDict_GetItem(self._places, written)
        place = self._found_place(written) if found == NULL else <_Place>found
        if place is not None and place.phase is not place.target.current:
            place.phase = phase = place.target.current
            place.mark, place.none_granted, place.since = phase.mark, phase.none_granted, phase.since
        return place

    cdef _Place _found_place(self, bytes written):
        cdef _Place place
        uuid, major, minor, _ = written.decode().split("\0")
        try:
            beacon = self._cache.known.get(beacon_key(uuid, major, minor))
        except ValueError:
            return None
        if beacon is None:
            return None
        place = _Place.__new__(_Place)
        place.target = beacon.target
        self._places[written] = place
        return place

    cdef double _detected_at(self, record, DetectionText *text) except? -2.0:
        """Epoch seconds; _UNREADABLE for a time that is none, or before 1970."""
        cdef Text written = text.detected_at
        if written.size < 0:
            return record.timestamp / 1000
        if text.detected_at_is_number:
            return _seconds(&written)
        if written.size > _LONGEST_TIMESTAMP:
            return _UNREADABLE
        # Devices report whole seconds, so the next record often has the same text.
        if written.size != self._last_size or memcmp(written.at, self._last_text, written.size):
            try:
                self._last_at = parse_text(_str(&written))
            except ValueError:
                return _UNREADABLE
            memcpy(self._last_text, written.at, written.size)
            self._last_size = written.size
        return self._last_at


cdef object _str(Text *text):
    return PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, text.at, text.size)


cdef inline Py_ssize_t _append(char *triple, Py_ssize_t size, Text *part) noexcept:
    memcpy(triple + size, part.at, part.size)
    triple[size + part.size] = 0
    return size + part.size + 1


cdef double _seconds(Text *digits) noexcept:
    cdef long long value = 0
    cdef Py_ssize_t i
    for i in range(digits.size):
        value = 10 * value + (digits.at[i] - c"0")
    return <double>value / 1000 if value <= _LATEST_MS else _UNREADABLE

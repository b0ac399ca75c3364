# cython: language_level=3, boundscheck=False, wraparound=False
"""Reads the values of a detection that was scanned (detection_scan.pxd), for the compiled modules.

Each value is that of detections.py, or there is none: then the decoder must read the record. Cython
compiles this module while the project is installed.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport pow
from libc.string cimport memcmp, memcpy

from engine.kafka.detection_scan cimport DetectionText, Text, number_of

from engine.kafka.detections import beacon_key
from engine.kafka.timestamps import LATEST_MS, parse_text
from rules.proximity import DEFAULT_TX_POWER, IMMEDIATE_BELOW, NEAR_UP_TO, USUAL_NAMES

cdef extern from "Python.h":
    int PyUnicode_1BYTE_KIND
    object PyUnicode_FromKindAndData(int kind, const void *buffer, Py_ssize_t size)

cdef enum:
    _LONGEST_UUID = 36
    _MOST_DIGITS = 5
    _LONGEST_TRIPLE = 49  # of uuid, major and minor, each with a NUL
    _LONGEST_TIMESTAMP = 40
    _MOST_ZONE_NAMES = 64
    _LONGEST_ZONE_NAME = 32
    # The numbers of rules.model.Zone.
    _UNKNOWN = 0
    _IMMEDIATE = 1
    _NEAR = 2
    _FAR = 3

cdef double _DEFAULT_TX_POWER = DEFAULT_TX_POWER
cdef double _IMMEDIATE_BELOW = IMMEDIATE_BELOW
cdef double _NEAR_UP_TO = NEAR_UP_TO
cdef long long _LATEST_MS = LATEST_MS
cdef double _UNREADABLE = -1.0  # a time before 1970 is left to the decoder, too


cdef struct _ZoneName:
    char text[_LONGEST_ZONE_NAME]
    Py_ssize_t size
    int zone


cdef _ZoneName _ZONE_NAMES[_MOST_ZONE_NAMES]
cdef int _zone_names = 0

if len(USUAL_NAMES) > _MOST_ZONE_NAMES or max(map(len, USUAL_NAMES)) > _LONGEST_ZONE_NAME:
    raise ImportError("rules.proximity has more names than detection_values.pyx has room for")
for _name, _zone in USUAL_NAMES.items():
    _bytes = _name.encode()
    memcpy(_ZONE_NAMES[_zone_names].text, <const char *>_bytes, len(_bytes))
    _ZONE_NAMES[_zone_names].size = len(_bytes)
    _ZONE_NAMES[_zone_names].zone = _zone
    _zone_names += 1


cdef object text_of(Text *text):
    """The text as str; it is ASCII."""
    return PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, text.at, text.size)


cdef bytes triple_of(DetectionText *text):
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


def key_of(bytes triple):
    """The key of a triple as written; None if the decoder refuses it."""
    uuid, major, minor, _ = triple.decode().split("\0")
    try:
        return beacon_key(uuid, major, minor)
    except ValueError:
        return None


cdef int zone_of(DetectionText *text, double path_loss_exponent) noexcept:
    """The number of the zone, or UNREADABLE_ZONE."""
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
    return UNREADABLE_ZONE


cdef class DetectionClock:
    """Reads the times of detections, and remembers the last text: devices report whole seconds, so
    the next record often has the same."""

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
            return milliseconds / 1000 if milliseconds <= _LATEST_MS else _UNREADABLE
        if written.size > _LONGEST_TIMESTAMP:
            return _UNREADABLE
        if written.size != self._size or memcmp(written.at, self._text, written.size):
            try:
                self._at = parse_text(text_of(&written))
            except ValueError:
                return _UNREADABLE
            memcpy(self._text, written.at, written.size)
            self._size = written.size
        return self._at if self._at >= 0 else _UNREADABLE


cdef inline Py_ssize_t _append(char *triple, Py_ssize_t size, Text *part) noexcept:
    memcpy(triple + size, part.at, part.size)
    triple[size + part.size] = 0
    return size + part.size + 1

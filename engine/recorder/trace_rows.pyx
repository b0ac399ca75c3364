# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The trace rows of detections that count: a sequence of DetectionRow, or the bytes of a COPY."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport fmax, fmin, modf, rint
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy, strlen

from engine.kafka.detection_scan cimport Text
from engine.kafka.detection_values cimport text_of
from engine.recorder.day_rule cimport Rule, leaves_trace
from engine.recorder.detection_batch cimport Entry
from engine.recorder.detection_counts cimport Counted, Place

from engine.recorder.aggregate import FIRST, LAST, LONGEST_IP, stored_instant
from engine.recorder.rows import STATUS, DetectionRow

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    _COLUMNS = 6
    _ROW = 2 + 6 * 4 + 4 * 8 + 16  # bytes of a row without its address
    _ENDS = 11 + 4 + 4 + 2
    _LONGEST_STATUS = 16
    _ZONES = 4

cdef Py_ssize_t _LONGEST_IP = LONGEST_IP
cdef double _FIRST = FIRST
cdef double _LAST = LAST
cdef int64_t _SECONDS_TO_2000 = 946_684_800
cdef char _STATUS[_ZONES][_LONGEST_STATUS]


cdef _note_status(int zone, bytes name):
    memcpy(_STATUS[zone], <const char *>name, len(name) + 1)


if len(STATUS) != _ZONES or max(map(len, STATUS.values())) >= _LONGEST_STATUS:
    raise ImportError("rules.model has more zones than trace_rows.pyx has room for")
for _zone, _name in STATUS.items():
    _note_status(_zone, _name.encode())


cdef class TraceRows:
    """The rows of the detections that leave a trace, in order."""

    cdef Counted counted
    cdef int *kept
    cdef Py_ssize_t count

    def __cinit__(self, Counted counted, double now):
        cdef Rule rule = Rule(counted.rule.max_age, counted.rule.retention, now)
        cdef Py_ssize_t i
        cdef Entry *entry
        self.counted = counted
        self.kept = <int *>PyMem_Calloc(counted.counted + 1, sizeof(int))
        if not self.kept:
            raise MemoryError
        for i in range(counted.batch.size):
            entry = &counted.batch.entries[i]
            if counted.device_of[i] < 0:
                continue
            if leaves_trace(&rule, entry.detected_at, entry.arrived_at):
                self.kept[self.count] = i
                self.count += 1

    def __dealloc__(self):
        PyMem_Free(self.kept)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        chosen = range(self.count)[index]
        return self._row(chosen) if isinstance(chosen, int) else [self._row(n) for n in chosen]

    cdef object _row(self, Py_ssize_t number):
        cdef int i = self.kept[number]
        cdef Entry *entry = &self.counted.batch.entries[i]
        cdef Place *place = &self.counted.places_c[self.counted.place_of[entry.beacon]]
        cdef Text ip = entry.ip
        if entry.other >= 0:
            address = self.counted.batch.others[entry.other][1]
        elif ip.size < 0:
            address = None
        else:
            ip.size = min(ip.size, _LONGEST_IP)
            address = text_of(&ip)
        return DetectionRow(
            self.counted.devices[self.counted.device_of[i]].id,
            place.venue_id,
            place.beacon_id,
            STATUS[entry.zone],
            stored_instant(entry.detected_at),
            address,
        )

    def as_copy(self):
        """The rows in PostgreSQL's binary format, in the order of DetectionRow."""
        cdef bytearray written = bytearray()
        cdef char *begin
        cdef char *at
        cdef Py_ssize_t number
        PyByteArray_Resize(written, self._space())
        begin = at = PyByteArray_AS_STRING(written)
        memcpy(at, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0", 19)
        at += 19
        for number in range(self.count):
            at = self._write(at, self.kept[number])
        at = _int16(at, -1)
        PyByteArray_Resize(written, at - begin)
        return written

    cdef Py_ssize_t _space(self) except -1:
        """At least the bytes of all rows."""
        cdef Py_ssize_t number, size, space = _ENDS
        cdef Entry *entry
        for number in range(self.count):
            entry = &self.counted.batch.entries[self.kept[number]]
            space += _ROW
            if entry.other < 0:
                space += min(max(entry.ip.size, 0), _LONGEST_IP)
                continue
            address = self.counted.batch.others[entry.other][1]
            if address is not None:
                PyUnicode_AsUTF8AndSize(address, &size)
                space += size
        return space

    cdef char *_write(self, char *at, int i) except NULL:
        cdef Entry *entry = &self.counted.batch.entries[i]
        cdef Place *place = &self.counted.places_c[self.counted.place_of[entry.beacon]]
        cdef const char *status = _STATUS[entry.zone]
        cdef const char *ip = entry.ip.at
        cdef Py_ssize_t size = min(entry.ip.size, _LONGEST_IP)
        if entry.other >= 0:
            address = self.counted.batch.others[entry.other][1]
            size = -1
            if address is not None:
                ip = PyUnicode_AsUTF8AndSize(address, &size)
        at = _int16(at, _COLUMNS)
        at = _int64_field(at, self.counted.devices[self.counted.device_of[i]].id)
        at = _int64_field(at, place.venue_id)
        at = _int64_field(at, place.beacon_id)
        at = _field(at, status, strlen(status))
        at = _int64_field(at, _microseconds(entry.detected_at))
        return _int32(at, -1) if size < 0 else _field(at, ip, size)


cdef int64_t _microseconds(double detected_at) noexcept:
    """From the year 2000 on, rounded as datetime.fromtimestamp does."""
    cdef double whole, part
    part = modf(fmin(fmax(detected_at, _FIRST), _LAST), &whole)
    return (<int64_t>whole - _SECONDS_TO_2000) * 1_000_000 + <int64_t>rint(part * 1e6)


cdef inline char *_big_endian(char *at, int64_t value, int size) noexcept:
    cdef int i
    for i in range(size):
        at[i] = <char>((value >> (8 * (size - 1 - i))) & 0xFF)
    return at + size


cdef inline char *_int16(char *at, int16_t value) noexcept:
    return _big_endian(at, value, 2)


cdef inline char *_int32(char *at, int32_t value) noexcept:
    return _big_endian(at, value, 4)


cdef inline char *_int64_field(char *at, int64_t value) noexcept:
    return _big_endian(_int32(at, 8), value, 8)


cdef inline char *_field(char *at, const char *text, Py_ssize_t size) noexcept:
    memcpy(_int32(at, <int32_t>size), text, size)
    return at + 4 + size

# cython: language_level=3, boundscheck=False, wraparound=False
"""Writes the messages of grants in C.

A message is put together from parts that are known, by copying them one after the other; what
differs is its id, and the device and the times of its detection. The messages are those of
MessageWriter (message_writer.py), byte for byte, which tests/property/test_compiled_writer.py
compares. Cython compiles this module while the project is installed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.math cimport floor
from libc.string cimport memcpy

import msgspec

from engine.kafka.batch_sender import Outgoing
from engine.redis.devices import DeviceKey, completed_device
from engine.trigger.fragments import ZONE_NAMES, place_of, times
from engine.trigger.grants import GrantMessage
from engine.trigger.message_writer import MessageWriter, WrittenMessages

cdef enum:
    _ID_BYTES = 16
    _ID_CHARACTERS = 36

cdef const char *_HEX_DIGITS = b"0123456789abcdef"
cdef object _encode = msgspec.json.Encoder().encode
cdef object _named_tuple = tuple.__new__


cdef class _Detection:
    """The parts that the messages of one detection share; `middle` comes before the texts."""

    cdef object detection
    cdef bytes key, device, middle, when

    cdef _enter(self, detection, beacon, known, double now, double lifetime):
        cdef double at = detection.detected_at
        received = detection.message.device
        udid = received.udid
        record = known.get(_named_tuple(DeviceKey, (beacon.company_reference.id, udid)))
        self.detection, self.key = detection, udid.encode()
        self.device = _encode(received if record is None else completed_device(received, record))
        self.middle = _joined([
            beacon.encoded_place or place_of(beacon),
            b'"proximity":"',
            ZONE_NAMES[detection.zone],
            b'","device":',
            self.device,
            b",",
        ])
        self.when = times(
            <long long>floor(at), <long long>floor(now), <long long>floor(at + lifetime)
        )


class CompiledMessageWriter(MessageWriter):
    """Writes what MessageWriter writes, in less time."""

    messages_at_once = 256

    def write(self, grants, known, double now, Py_ssize_t most, Py_ssize_t most_bytes):
        """See MessageWriter."""
        cdef list messages = []
        cdef Py_ssize_t size = 0
        cdef _Detection common = _Detection.__new__(_Detection)
        cdef double lifetime = self.lifetime
        cdef bytes value
        cdef PyObject *parts
        cdef dict parts_of = {}  # by the address of the campaign, which a grant keeps alive
        fragments, topic, take = self.fragments, self.topics.notifications, grants.popleft
        while grants and size < most_bytes and len(messages) < most:
            grant = take()
            detection, campaign = grant.detection, grant.campaign
            if common.detection is not detection:
                common._enter(detection, grant.beacon, known, now, lifetime)
            record = detection.record
            if record.headers or campaign.format == "connector":
                written = self.message_of(grant, common.device, now)
                value = written.message.value
            else:
                address = <size_t><PyObject *>campaign
                parts = PyDict_GetItem(parts_of, address)
                if parts == NULL:
                    parts_of[address] = fragments.of(campaign, None)
                    parts = PyDict_GetItem(parts_of, address)
                _, _, reference, texts, content, header = <tuple>parts
                id_ = _uuid_text(grant.notification_id)
                value = _joined([
                    b'{"id":"',
                    id_,
                    b'",',
                    reference,
                    common.middle,
                    texts,
                    b",",
                    common.when,
                    content,
                ])
                fields = topic, common.key, value, [("id", id_), header], record.timestamp
                written = GrantMessage(_named_tuple(Outgoing, fields), grant)
            messages.append(written)
            size += PyBytes_GET_SIZE(common.key) + PyBytes_GET_SIZE(value)
        return WrittenMessages(messages, size)


cdef bytes _joined(list parts):
    cdef Py_ssize_t size = 0
    cdef bytes part, whole
    cdef char *at
    for part in parts:
        size += PyBytes_GET_SIZE(part)
    whole = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(whole)
    for part in parts:
        memcpy(at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
        at += PyBytes_GET_SIZE(part)
    return whole


cdef bytes _uuid_text(bytes id_):
    cdef bytes text = PyBytes_FromStringAndSize(NULL, _ID_CHARACTERS)
    cdef char *to = PyBytes_AS_STRING(text)
    cdef const unsigned char *digits = id_
    cdef Py_ssize_t i
    if PyBytes_GET_SIZE(id_) != _ID_BYTES:
        raise ValueError("an id has 16 bytes")
    for i in range(_ID_BYTES):
        if i == 4 or i == 6 or i == 8 or i == 10:
            to[0] = c"-"
            to += 1
        to[0] = _HEX_DIGITS[digits[i] >> 4]
        to[1] = _HEX_DIGITS[digits[i] & 0xF]
        to += 2
    return text

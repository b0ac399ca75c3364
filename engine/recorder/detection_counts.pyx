# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Counts the detections of a batch that was read into C, by device.

The outcome is that of CountedDetections (detections.py), but for its form: devices are columns.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free

from engine.kafka.detection_scan cimport Text
from engine.kafka.detection_values cimport text_of
from engine.recorder.detection_batch cimport DetectionBatch, Entry

from engine.recorder.aggregate import LONGEST_NAME, LONGEST_TOKEN
from engine.recorder.rows import DeviceColumns

# The facts in the order of DeviceChanges and FactsText.
cdef enum:
    _TOKEN_PUSH = 0
    _NAME = 1
    _VERSION = 2
    _MODEL = 3
    _ID_CONNECTOR = 4

cdef Py_ssize_t _LONGEST_NAME = LONGEST_NAME
cdef Py_ssize_t _LONGEST_TOKEN = LONGEST_TOKEN


cdef class Counted:
    """The detections of a batch at `beacons`, which are active; see CountedDetections."""

    def __cinit__(self, DetectionBatch batch, beacons, rule):
        self.batch, self.rule = batch, rule
        self.places, self.company_ids, self.company_numbers = [], [], {}
        self.devices = <Device *>_allocated(batch.size, sizeof(Device))
        self.device_of = <int *>_allocated(batch.size, sizeof(int))
        self.place_of = <int *>_allocated(len(batch.keys), sizeof(int))
        self.places_c = <Place *>_allocated(len(batch.keys), sizeof(Place))
        self.first_of = <int *>_allocated(len(batch.udids), sizeof(int))
        self._place_positions(beacons)
        self._count()

    def __dealloc__(self):
        PyMem_Free(self.devices)
        PyMem_Free(self.device_of)
        PyMem_Free(self.place_of)
        PyMem_Free(self.places_c)
        PyMem_Free(self.first_of)

    cdef int _place_positions(self, beacons) except -1:
        cdef Py_ssize_t i
        cdef dict known = {}
        for i in range(len(self.batch.keys)):
            beacon = beacons.get(self.batch.keys[i])
            self.place_of[i] = -1
            if beacon is None:
                continue
            number = known.get(beacon)
            if number is None:
                known[beacon] = number = len(self.places)
                self.places_c[<int>number] = Place(
                    beacon.beacon_id, beacon.venue_id, self._company(beacon.company_id)
                )
                self.places.append(beacon)
            self.place_of[i] = number
        return 0

    cdef int _company(self, number) except -1:
        found = self.company_numbers.get(number)
        if found is None:
            self.company_numbers[number] = found = len(self.company_ids)
            self.company_ids.append(number)
        return found

    cdef int _count(self) except -1:
        cdef Py_ssize_t i
        cdef Entry *entry
        cdef Device *device
        cdef int place
        for i in range(len(self.batch.udids)):
            self.first_of[i] = -1
        for i in range(self.batch.size):
            entry = &self.batch.entries[i]
            place = self.place_of[entry.beacon] if entry.beacon >= 0 else -1
            if place < 0:
                self.device_of[i] = -1
                continue
            self.device_of[i] = self._device(entry.udid, self.places_c[place].company)
            device = &self.devices[self.device_of[i]]
            device.nb_beacon += 1
            self._note_facts(entry, i, device)
            self.counted += 1
        return 0

    cdef int _device(self, int udid, int company) noexcept:
        """The position of the device, which may be new."""
        cdef int i, found = self._found_device(udid, company)
        cdef Device *device
        if found >= 0:
            return found
        device = &self.devices[self.device_count]
        device.udid, device.company, device.next = udid, company, self.first_of[udid]
        device.id = device.marked = -1
        for i in range(FACTS):
            device.last[i] = -1
        self.first_of[udid] = self.device_count
        self.device_count += 1
        return self.device_count - 1

    cdef int _found_device(self, int udid, int company) noexcept:
        cdef int found = self.first_of[udid]
        while found >= 0 and self.devices[found].company != company:
            found = self.devices[found].next
        return found

    cdef int _note_facts(self, Entry *entry, int i, Device *device) except -1:
        if entry.other >= 0:
            changes = self.batch.others[entry.other][0]
            for number in range(FACTS):
                if _changed(changes, number) is not None:
                    device.last[<int>number] = i
            return 0
        if entry.facts.name.size >= 0:
            device.last[_NAME] = i
        if entry.facts.version.size >= 0:
            device.last[_VERSION] = i
        if entry.facts.model.size >= 0:
            device.last[_MODEL] = i
        if 0 <= entry.facts.token_push.size <= _LONGEST_TOKEN:
            device.last[_TOKEN_PUSH] = i
        if entry.facts.id_connector.size >= 0:
            device.last[_ID_CONNECTOR] = i
        return 0

    cdef object _fact(self, int number, Device *device):
        cdef Entry *entry
        cdef Text text
        if device.last[number] < 0:
            return None
        entry = &self.batch.entries[device.last[number]]
        if entry.other >= 0:
            return _changed(self.batch.others[entry.other][0], number)
        if number == _TOKEN_PUSH:
            return text_of(&entry.facts.token_push)
        if number == _ID_CONNECTOR:
            return int(text_of(&entry.facts.id_connector))
        if number == _NAME:
            text = entry.facts.name
        elif number == _VERSION:
            text = entry.facts.version
        else:
            text = entry.facts.model
        text.size = min(text.size, _LONGEST_NAME)
        return text_of(&text)

    def device_updates(self):
        """The columns of the devices' changes, in the order of (company, udid)."""
        cdef list companies = [], udids = [], nb_beacon = [], facts = [[] for _ in range(FACTS)]
        cdef list of_company
        cdef Device *device
        cdef int i, number, company
        for company_id in sorted(self.company_ids):
            company = self.company_numbers[company_id]
            of_company = []
            for i in range(self.device_count):
                if self.devices[i].company == company:
                    of_company.append(self.batch.udids[self.devices[i].udid])
            of_company.sort()
            for udid in of_company:
                device = &self.devices[self._found_device(self.batch.numbers[udid], company)]
                companies.append(company_id)
                udids.append(udid)
                nb_beacon.append(device.nb_beacon)
                for number in range(FACTS):
                    (<list>facts[number]).append(self._fact(number, device))
        return DeviceColumns(companies, udids, nb_beacon, [0] * len(udids), *facts)

    def note_stored(self, stored):
        """Note (company, udid, id, test, new) of each device, as SQL has told them."""
        cdef Device *device
        cdef int found, noted = 0
        for company_id, udid, number, is_test, is_new in stored:
            found = self._found_device(self.batch.numbers[udid], self.company_numbers[company_id])
            if found < 0:
                raise KeyError(udid)
            device = &self.devices[found]
            device.id, device.is_test, device.is_new = number, is_test, is_new
            noted += 1
        if noted != self.device_count:
            raise KeyError("SQL has not told the ids of all devices")


cdef object _changed(changes, int number):
    if number == _TOKEN_PUSH:
        return changes.token_push
    if number == _NAME:
        return changes.name
    if number == _VERSION:
        return changes.version
    return changes.model if number == _MODEL else changes.id_connector


cdef void *_allocated(Py_ssize_t count, Py_ssize_t size) except NULL:
    """Zeros, for at least one."""
    cdef void *memory = PyMem_Calloc(count + 1, size)
    if memory == NULL:
        raise MemoryError
    return memory

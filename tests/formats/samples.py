"""Reports as the documentation of their formats shows them, without some fields that nobody reads.

Where a page shows a letter for a number (OwnTracks: acc, rssi, prox), a number stands there.
"""

# Minew G1, JSON over MQTT (github.com/Krillsom/iot_proyect, MQTT_IOT_GUIDE.md). Minew's own manual
# is not on the web as text.
MINEW = b"""[
  {
    "timestamp": "2026-02-09T00:13:53.668Z",
    "type": "Gateway",
    "mac": "AC233FC03641"
  },
  {
    "timestamp": "2026-02-09T00:13:53.667Z",
    "type": "iBeacon",
    "mac": "C3000025EF6A",
    "ibeaconUuid": "E2C56DB5DFFB48D2B060D0F5A71096E0",
    "ibeaconMajor": 0,
    "ibeaconMinor": 0,
    "rssi": -65,
    "ibeaconTxPower": -59,
    "battery": 0
  }
]"""

# The same over HTTP in 2017, as a user's server kept it: no element of the gateway's own, and raw
# frames of what it did not know.
MINEW_2017 = (
    b'[{"timestamp":"2017-09-06T09:37:45Z","type":"Unknown","mac":"1918FC051F60","bleName":"",'
    b'"rssi":-72,"rawData":"1E168643BDBBBADEBABAA3A246BFA5DA813C95B29DA8AEE27FBA88454545BA"},'
    b'{"timestamp":"2017-09-06T09:37:46Z","type":"iBeacon","mac":"1918FC051F5A","bleName":"",'
    b'"ibeaconUuid":"FDA50693A4E24FB1AFCFC6EB07647825","ibeaconMajor":10002,"ibeaconMinor":5208,'
    b'"rssi":-67,"ibeaconTxPower":-59,"battery":0},'
    b'{"timestamp":"2017-09-06T09:37:45Z","type":"Unknown","mac":"3535EDC935EE","bleName":"",'
    b'"rssi":-61,"rawData":"1EFF060001092000351A0F7A6A0A330B5CC7A2C1BE09A1C536C259B583CA30"}]'
)

# The page "use/ble" of OpenMQTTGateway (docs.openmqttgateway.com).
THEENGS = (
    b'{"id":"60:87:57:4C:9B:C2","mac_type":1,"rssi":-78,"distance":7.85288,"brand":"GENERIC",'
    b'"model":"iBeacon","model_id":"IBEACON","mfid":"4c00",'
    b'"uuid":"1de4b189115e45f6b44e509352269977","major":0,"minor":0,"txpower":-66}'
)

# OwnTracks booklet, tech/json (owntracks.org/booklet/tech/json), _type=beacon and _type=steps.
OWNTRACKS = b"""{
        "_type":"beacon",
        "uuid":"CA271EAE-5FA8-4E80-8F08-2A302A95A959",
        "major":1,
        "minor":1,
        "tst": 1399028969,
        "acc":1.2,
        "rssi":-62,
        "prox":2
}"""
OWNTRACKS_STEPS = (
    b'{"_type":"steps","tst":1400455130,"steps":1234,"from":1400455130,"to":1400458000}'
)
# A location as the Android app publishes it, and a transition as openHAB's binding for OwnTracks
# shows it.
OWNTRACKS_LOCATION = (
    b'{"_type":"location","acc":12,"alt":10,"batt":56,"bs":1,"cog":180,"conn":"w",'
    b'"created_at":1704110401,"lat":52.1,"lon":5.1,"t":"u","tid":"5f","tst":1704110400,"vac":1,'
    b'"vel":9}'
)
OWNTRACKS_TRANSITION = (
    b'{"_type":"transition","tid":"XX","acc":10.0,"desc":"Work","event":"enter","lat":42.53,'
    b'"lon":18.22,"tst":1527966973,"wtst":1524244195,"t":"c"}'
)

# Radar's page "Webhooks" (radar.com/documentation/integrations/webhooks), multiple events.
RADAR = b"""{
  "events": [
    {
      "_id": "56db1f4613012711002229f6",
      "type": "user.entered_geofence",
      "createdAt": "2018-06-12T13:44:10.535Z",
      "user": {
        "userId": "1",
        "deviceId": "C305F2DB-56DC-404F-B6C1-BC52F0B680D8"
      },
      "location": {"type": "Point", "coordinates": [-73.977797, 40.783826]},
      "locationAccuracy": 5,
      "actualCreatedAt": "2018-06-12T13:44:10.535Z"
    },
    {
      "_id": "56db1f4613012711002229f7",
      "type": "user.entered_place",
      "createdAt": "2018-06-12T13:44:10.535Z",
      "location": {"type": "Point", "coordinates": [-73.977797, 40.783826]},
      "locationAccuracy": 5
    }
  ],
  "user": {"_id": "56db1f4613012711002229f4", "userId": "1",
           "deviceId": "C305F2DB-56DC-404F-B6C1-BC52F0B680D8"}
}"""

# ESPresense, espresense/devices/<id>/<room> (espresense.com/configuration/mqtt; the keys are those
# of BleFingerprint::fill in github.com/ESPresense/ESPresense): a phone in the Home Assistant app,
# received by the kitchen's node, and a device that is no iBeacon.
ESPRESENSE_TOPIC = b"espresense/devices/iBeacon:1d4b2e16-481e-4579-8b35-ffc32e4a1758-100-1/kitchen"
ESPRESENSE = (
    b'{"mac":"5a3f1c9d0e42","id":"iBeacon:1d4b2e16-481e-4579-8b35-ffc32e4a1758-100-1",\n'
    b' "name":"pixel-8","rssi@1m":-59,"rssi":-72.35,"rxAdj":20,"rssiVar":1.84,\n'
    b' "distance":3.42,"var":0.21,"int":1032}'
)
ESPRESENSE_KNOWN = (
    b'{"mac":"eeede852bd0b","id":"known:eeede852bd0b","rssi@1m":-71,"rssi":-37.1,"rxAdj":0,'
    b'"rssiVar":7.32,"distance":0.06,"var":0,"close":true,"int":1101}'
)

# Juniper Mist, asset-raw-rssi (github.com/tmunzer/mistapi-go, doc/events/webhooks/webhooks/
# asset-raw-rssi.md, made from Juniper's own OpenAPI document); the second event has no iBeacon's
# uuid. And location-asset, which has the position of an asset without a receiver.
MIST = b"""{
  "events": [
    {
      "device_id": "00000000-0000-0000-1000-ac2316eca70b",
      "ibeacon_major": 2,
      "ibeacon_minor": 2121,
      "ibeacon_uuid": "ac950d7b-af31-42d2-be7c-e15639fab2cd",
      "mac": "ed2cc53f2770",
      "rssi": -79,
      "timestamp": 1661300746
    },
    {
      "device_id": "00000000-0000-0000-1000-ac2316eca70b",
      "mac": "ed2cc53f2771",
      "rssi": -74,
      "timestamp": 1661300746,
      "ibeacon_major": 178,
      "ibeacon_minor": 40
    }
  ],
  "topic": "asset-raw-rssi"
}"""
MIST_LOCATION = (
    b'{"events":[{"ibeacon_major":13,"ibeacon_minor":138,"timestamp":1461220784,"type":"asset",'
    b'"ibeacon_uuid":"f3f17139-704a-f03a-2786-0400279e37c3","mac":"7fc2936fd243","x":13.5,'
    b'"y":3.2}],"topic":"location-asset"}'
)

# Kontakt.io, version 3 (github.com/kontaktio/telegraf_archived,
# plugins/parsers/kontakt/kontakt_test.go): a packet of their own.
KONTAKT = b"""{
   "version":3,
   "timestamp":1518421586,
   "sourceId":"gatewayUniqueId",
   "sourceType":"GATEWAY",
   "events":[
      {
         "rssi":-51,
         "data":"DhZq/gIIBAEBBHlhdW0=",
         "timestamp":1688335200,
         "deviceAddress":"f9:10:e1:40:d4:f1"
      }
   ]
}"""

# Kontakt.io's cloud (Kio Cloud), component Telemetry of the OpenAPI document "Location & Occupancy"
# (developer.kontakt.io, as github.com/api-evangelist/kontaktio keeps it in openapi/): an event of
# the stream is an element of the page that GET /v3/telemetry answers.
KIO_TELEMETRY = b"""{
  "timestamp": "2021-10-07T05:41:07.985Z",
  "beaconTimestamp": "2021-10-07T11:41:07.988Z",
  "gatewayTimestamp": "2021-10-07T11:41:07.988Z",
  "cloudTimestamp": "2021-10-07T11:41:07.988Z",
  "rssi": 4,
  "sourceId": "CKgIEuTDpY",
  "uniqueId": "LWdBIM",
  "calibratedRssi1m": -77,
  "iBeaconProximity": "23e16784-c2b5-43b6-b199-49de659535de",
  "iBeaconMajor": 57095,
  "iBeaconMinor": 20686
}"""
KIO_PAGE = (
    b'{"page":{"hasNext":false,"size":2},"content":[{"timestamp":"2022-03-20T23:39:00Z","rssi":-62,'
    b'"sourceId":"12Bh000T","numberOfPeopleDetected":0,"uniqueId":"11rc007c"},'
    + KIO_TELEMETRY
    + b"]}"
)
# Its presence stream (github.com/kontaktio, location engine's clients): a list, and no triple.
KIO_PRESENCE = (
    b'[{"timestamp":1550526971,"sourceId":"0C:8D:DB:D9:0D:5B","trackingId":"5C:49:7D:AB:6E:19",'
    b'"rssi":-86,"proximity":"NEAR","scanType":"BLE","deviceAddress":null}]'
)

# An advertisement of an iBeacon, from a gateway's manual: Ingics iGS01S (manualshive.com, page 3),
# UUID B9A5D27D56CC4E3AAB511F2153BCB967, major 0001, minor 452E.
INGICS = bytes.fromhex("0201061AFF4C000215B9A5D27D56CC4E3AAB511F2153BCB9670001452ED6")

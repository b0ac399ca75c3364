-- The recorder on SQLite. The first parameter is a JSON list of rows; SQLite has one writer at a time.

-- name: begin_offset
INSERT INTO recorder_offset (topic, "partition", next_offset) VALUES (?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: advance_offset
UPDATE recorder_offset SET next_offset = ?3
WHERE topic = ?1 AND "partition" = ?2 AND next_offset = ?4;

-- name: positions
SELECT "partition", next_offset, topic_id FROM recorder_offset WHERE topic = ?;

-- name: first_position
INSERT INTO recorder_offset (topic, "partition", next_offset, topic_id) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: move_position
UPDATE recorder_offset SET next_offset = ?3, topic_id = ?4
WHERE topic = ?1 AND "partition" = ?2 AND next_offset = ?5 AND topic_id IS ?6;

-- name: note_past
INSERT INTO recorder_past (topic, ended_on) VALUES (?, strftime('%Y-%m-%d %H:%M:%f000', 'now')) ON CONFLICT DO NOTHING;

-- name: now
SELECT strftime('%Y-%m-%d %H:%M:%f000', 'now');

-- name: existing_companies
SELECT id FROM company WHERE id IN (SELECT value FROM json_each(?));

-- name: venue_time_zones
SELECT id, time_zone FROM venue WHERE id IN (SELECT value FROM json_each(?));

-- name: applications
SELECT api_key, id, company_id, active, expire_on FROM application
WHERE api_key IN (SELECT value FROM json_each(?));

-- name: active_beacons
SELECT beacon.uuid, beacon.major, beacon.minor, beacon.id, venue.id, venue.company_id, venue.time_zone
FROM json_each(?) AS wanted
JOIN beacon ON beacon.uuid = json_extract(wanted.value, '$[0]')
    AND beacon.major = json_extract(wanted.value, '$[1]')
    AND beacon.minor = json_extract(wanted.value, '$[2]')
JOIN venue ON venue.id = beacon.venue_id
WHERE beacon.active AND venue.active
    AND beacon.deleted_at IS NULL AND venue.deleted_at IS NULL;

-- name: add_devices
INSERT INTO device (
    company_id, udid, nb_beacon, nb_campaign, token_push, name, version, model, id_connector,
    test, create_on, update_on
)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
    json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]'),
    0, ?2, ?2
FROM json_each(?1) WHERE true
ON CONFLICT (company_id, udid) DO UPDATE SET
    nb_beacon = device.nb_beacon + excluded.nb_beacon,
    nb_campaign = device.nb_campaign + excluded.nb_campaign,
    token_push = coalesce(excluded.token_push, device.token_push),
    name = coalesce(excluded.name, device.name),
    version = coalesce(excluded.version, device.version),
    model = coalesce(excluded.model, device.model),
    id_connector = coalesce(excluded.id_connector, device.id_connector),
    update_on = excluded.update_on
RETURNING company_id, udid, id, test, ?3;

-- name: add_detections
INSERT INTO detection_trace (device_id, venue_id, beacon_id, status, create_on, ip)
VALUES (?, ?, ?, ?, ?, ?);

-- name: add_authentications
INSERT INTO authentication_trace (device_id, application_id, create_on, ip) VALUES (?, ?, ?, ?);

-- name: counted_notifications
SELECT notification FROM reception WHERE notification IN (SELECT value FROM json_each(?));

-- name: add_receptions
INSERT INTO reception (notification, device_id, campaign_id, create_on, recorded_on)
VALUES (?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f000', 'now'));

-- name: presences
SELECT device_id, beacon_id, status, create_on
FROM json_each(?) AS wanted
JOIN presence ON device_id = json_extract(wanted.value, '$[0]')
    AND beacon_id = json_extract(wanted.value, '$[1]');

-- name: set_presences
INSERT INTO presence (device_id, beacon_id, status, create_on, recorded_on)
VALUES (?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (device_id, beacon_id) DO UPDATE SET
    status = excluded.status, create_on = excluded.create_on, recorded_on = excluded.recorded_on;

-- name: add_statistic_devices
INSERT INTO statistic_device (day, kind, ref, device_id)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]')
FROM json_each(?) WHERE true
ON CONFLICT DO NOTHING
RETURNING day, kind, ref, 1;

-- name: add_statistics
INSERT INTO statistic (day, kind, ref, venue_id, detections, devices, notifications)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, kind, ref) DO UPDATE SET
    detections = statistic.detections + excluded.detections,
    devices = statistic.devices + excluded.devices,
    notifications = statistic.notifications + excluded.notifications;

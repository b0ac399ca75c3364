-- The recorder's statements for both databases (ledger.py reads this file). Macros:
-- {rows NAME TYPE, ...} selects the objects in the first parameter, a JSON list, {list TYPE} its
-- values, {each COLUMN} joins the items of a column that is a list; {add TABLE} adds to a table of daily
-- figures; {now} is SQL's clock. Rows are sorted by the caller, because they are locked in their order.

-- name: first_position
INSERT INTO recorder_offset (topic, "partition", next_offset, topic_id, replaced)
VALUES ($1, $2, $3, $4, false)
ON CONFLICT DO NOTHING RETURNING 1;

-- name: move_position
UPDATE recorder_offset SET next_offset = $3, topic_id = $4, replaced = replaced OR $7
WHERE topic = $1 AND "partition" = $2 AND next_offset = $5
    AND coalesce(topic_id, '') = coalesce($6, '')
RETURNING 1;

-- name: positions
SELECT "partition", next_offset, topic_id FROM recorder_offset WHERE topic = $1;

-- name: now
SELECT {now};

-- name: existing_companies
SELECT id FROM company WHERE id IN ({list bigint});

-- name: venue_time_zones
SELECT id, time_zone FROM venue WHERE id IN ({list bigint});

-- name: applications
SELECT api_key, id, company_id, active, expire_on FROM application WHERE api_key IN ({list text});

-- name: active_beacons
SELECT wanted.uuid, wanted.major, wanted.minor, beacon.id, venue.id, venue.company_id,
    venue.time_zone, 'beacon'
-- Keys one at a time, by the index of triples: for any number of keys PostgreSQL else compares each
-- of them with each beacon of a catalog that is not analyzed yet.
FROM (
    SELECT keys.*, (
        SELECT id FROM beacon
        WHERE uuid = keys.uuid AND major = keys.major AND minor = keys.minor
            AND active AND deleted_at IS NULL
        LIMIT 1
    ) AS beacon_id
    FROM ({rows uuid text, major integer, minor integer}) AS keys
) AS wanted
JOIN beacon ON beacon.id = wanted.beacon_id
JOIN venue ON venue.id = beacon.venue_id
WHERE venue.active AND venue.deleted_at IS NULL;

-- name: active_geofences
SELECT geofence.id, geofence.id, venue.id, venue.company_id, venue.time_zone, 'geofence'
FROM ({rows id bigint}) AS wanted
JOIN geofence ON geofence.id = wanted.id JOIN venue ON venue.id = geofence.venue_id
WHERE geofence.active AND geofence.deleted_at IS NULL
    AND venue.active AND venue.deleted_at IS NULL;

-- name: active_circles
SELECT venue.company_id, geofence.id, geofence.latitude, geofence.longitude, geofence.radius
FROM venue JOIN geofence ON geofence.venue_id = venue.id
WHERE venue.company_id IN ({list bigint}) AND venue.active AND venue.deleted_at IS NULL
    AND geofence.active AND geofence.deleted_at IS NULL
ORDER BY geofence.id;

-- name: active_tags
SELECT scan_tag.company_id, scan_tag.kind, scan_tag.value, scan_tag.id, venue.id, venue.company_id,
    venue.time_zone, scan_tag.kind
FROM ({rows company_id bigint, kind text, value text}) AS wanted
JOIN scan_tag ON scan_tag.company_id = wanted.company_id AND scan_tag.kind = wanted.kind
    AND scan_tag.value = wanted.value AND scan_tag.active AND scan_tag.deleted_at IS NULL
JOIN venue ON venue.id = scan_tag.venue_id AND venue.active AND venue.deleted_at IS NULL;

-- name: add_devices
INSERT INTO device (
    company_id, udid, nb_beacon, nb_campaign, token_push, name, version, model, id_connector,
    time_zone, test, create_on, update_on
)
SELECT changes.*, false, {now}, {now}
FROM ({rows company_id bigint, udid text, nb_beacon bigint, nb_campaign bigint, token_push text,
    name text, version text, model text, id_connector bigint, time_zone text}) AS changes
WHERE true
ON CONFLICT (company_id, udid) DO UPDATE SET
    nb_beacon = device.nb_beacon + excluded.nb_beacon,
    nb_campaign = device.nb_campaign + excluded.nb_campaign,
    token_push = coalesce(excluded.token_push, device.token_push),
    name = coalesce(excluded.name, device.name),
    version = coalesce(excluded.version, device.version),
    model = coalesce(excluded.model, device.model),
    id_connector = coalesce(excluded.id_connector, device.id_connector),
    time_zone = coalesce(excluded.time_zone, device.time_zone),
    update_on = excluded.update_on
RETURNING company_id, udid, id, test;

-- name: add_detections
INSERT INTO detection_trace (
    device_id, venue_id, beacon_id, status, create_on, ip, geofence_id, scan_tag_id
)
{rows device_id bigint, venue_id bigint, beacon_id bigint, status text, create_on timestamptz,
    ip text, geofence_id bigint, scan_tag_id bigint};

-- name: add_authentications
INSERT INTO authentication_trace (device_id, application_id, create_on, ip)
{rows device_id bigint, application_id bigint, create_on timestamptz, ip text};

-- name: counted_reception
SELECT notification FROM reception WHERE notification IN ({list uuid});

-- name: add_reception
INSERT INTO reception (notification, device_id, campaign_id, create_on, recorded_on)
SELECT counted.*, {now}
FROM ({rows id uuid, device_id bigint, campaign_id bigint, create_on timestamptz})
    AS counted;

-- name: counted_visit_event
SELECT id FROM visit_event WHERE id IN ({list uuid});

-- name: test_devices
SELECT device.company_id, device.udid
FROM ({rows company_id bigint, udid text}) AS wanted
JOIN device ON device.company_id = wanted.company_id AND device.udid = wanted.udid AND device.test;

-- name: add_visit_event
INSERT INTO visit_event (id, company_id, at, recorded_on)
SELECT counted.*, {now} FROM ({rows id uuid, company_id bigint, at timestamptz}) AS counted;

-- name: add_visits
{add visit_statistic};

-- name: presences
SELECT device_id, kind, ref, status, create_on
FROM ({rows device_id bigint, kind text, ref bigint}) AS wanted
JOIN presence USING (device_id, kind, ref);

-- name: set_presences
INSERT INTO presence (device_id, kind, ref, status, create_on, recorded_on)
SELECT states.*, {now}
FROM ({rows device_id bigint, kind text, ref bigint, status text, create_on timestamptz}) AS states
WHERE true
ON CONFLICT (device_id, kind, ref) DO UPDATE SET
    status = excluded.status, create_on = excluded.create_on, recorded_on = excluded.recorded_on;

-- name: add_devices_of_day
INSERT INTO statistic_device (day, kind, ref, device_id)
SELECT members.day, members.kind, members.ref, item.value
FROM ({rows day date, kind text, ref bigint, devices bigint[]}) AS members,
    {each members.devices}
WHERE true
ON CONFLICT DO NOTHING
RETURNING day, kind, ref, 1;

-- name: add_statistics
{add statistic};

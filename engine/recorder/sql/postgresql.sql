-- The recorder on PostgreSQL. Arrays are columns of rows, sorted by the caller where rows are locked.
-- Where rows are many, arrays are unnested in the list of columns: in FROM each becomes a table first.

-- name: begin_offset
INSERT INTO recorder_offset (topic, partition, next_offset) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;

-- name: advance_offset
UPDATE recorder_offset SET next_offset = $3
WHERE topic = $1 AND partition = $2 AND next_offset = $4;

-- name: positions
SELECT partition, next_offset, topic_id FROM recorder_offset WHERE topic = $1;

-- name: first_position
INSERT INTO recorder_offset (topic, partition, next_offset, topic_id) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING;

-- name: move_position
UPDATE recorder_offset SET next_offset = $3, topic_id = $4
WHERE topic = $1 AND partition = $2 AND next_offset = $5 AND topic_id IS NOT DISTINCT FROM $6;

-- name: note_past
INSERT INTO recorder_past (topic, ended_on) VALUES ($1, now()) ON CONFLICT DO NOTHING;

-- name: now
SELECT now();

-- name: existing_companies
SELECT id FROM company WHERE id = ANY ($1::bigint[]);

-- name: venue_time_zones
SELECT id, time_zone FROM venue WHERE id = ANY ($1::bigint[]);

-- name: applications
SELECT api_key, id, company_id, active, expire_on FROM application WHERE api_key = ANY ($1::text[]);

-- name: active_beacons
SELECT beacon.uuid, beacon.major, beacon.minor, beacon.id, venue.id, venue.company_id, venue.time_zone
FROM unnest($1::text[], $2::integer[], $3::integer[]) AS wanted (uuid, major, minor)
CROSS JOIN LATERAL (
    -- One at a time, by the index of triples: in a plan for any number of keys PostgreSQL else
    -- compared each key with each beacon of a catalog that was not analyzed yet.
    SELECT * FROM beacon
    WHERE beacon.uuid = wanted.uuid AND beacon.major = wanted.major AND beacon.minor = wanted.minor
        AND beacon.active AND beacon.deleted_at IS NULL
    LIMIT 1
) AS beacon
JOIN venue ON venue.id = beacon.venue_id
WHERE venue.active AND venue.deleted_at IS NULL;

-- name: add_devices
INSERT INTO device (
    company_id, udid, nb_beacon, nb_campaign, token_push, name, version, model, id_connector,
    test, create_on, update_on
)
SELECT
    unnest($1::bigint[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[]),
    unnest($5::text[]), unnest($6::text[]), unnest($7::text[]), unnest($8::text[]),
    unnest($9::bigint[]), false, $10::timestamptz, $10::timestamptz
ON CONFLICT (company_id, udid) DO UPDATE SET
    nb_beacon = device.nb_beacon + excluded.nb_beacon,
    nb_campaign = device.nb_campaign + excluded.nb_campaign,
    token_push = coalesce(excluded.token_push, device.token_push),
    name = coalesce(excluded.name, device.name),
    version = coalesce(excluded.version, device.version),
    model = coalesce(excluded.model, device.model),
    id_connector = coalesce(excluded.id_connector, device.id_connector),
    update_on = excluded.update_on
-- A row that was there has been locked, so it has an xmax.
RETURNING company_id, udid, id, test, $11::boolean AND xmax = 0;

-- name: counted_notifications
SELECT notification FROM reception WHERE notification = ANY ($1::uuid[]);

-- name: presences
SELECT device_id, beacon_id, status, create_on
FROM unnest($1::bigint[], $2::bigint[]) AS wanted (device_id, beacon_id)
JOIN presence USING (device_id, beacon_id);

-- name: set_presences
INSERT INTO presence (device_id, beacon_id, status, create_on, recorded_on)
SELECT *, now() FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[])
ON CONFLICT (device_id, beacon_id) DO UPDATE SET
    status = excluded.status, create_on = excluded.create_on, recorded_on = now();

-- name: add_statistic_devices
WITH fresh AS (
    INSERT INTO statistic_device (day, kind, ref, device_id)
    SELECT unnest($1::date[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[])
    ON CONFLICT DO NOTHING
    RETURNING day, kind, ref
)
SELECT day, kind, ref, count(*) FROM fresh GROUP BY day, kind, ref;

-- name: add_statistics
INSERT INTO statistic (day, kind, ref, venue_id, detections, devices, notifications)
SELECT
    unnest($1::date[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[]),
    unnest($5::bigint[]), unnest($6::bigint[]), unnest($7::bigint[])
ON CONFLICT (day, kind, ref) DO UPDATE SET
    detections = statistic.detections + excluded.detections,
    devices = statistic.devices + excluded.devices,
    notifications = statistic.notifications + excluded.notifications;

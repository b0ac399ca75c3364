-- Put a finished construction in the place of its bucket. May be sent twice.
-- KEYS    1  bucket
--         2  bucket under construction
-- ARGV    1  generation of the index transaction
--         2  marker of the index transaction, JSON, byte for byte as begun
--         3  number of fields that were put
-- RETURNS    OK
-- ERRORS     STALE    a later writer has written or rebuilds: give up
--            MISSING  the construction is gone, or a part of it: begin again
local current = redis.call('HGET', KEYS[1], 'm')
if current and current == ARGV[2] then
  return redis.status_reply('OK')
end
if current and cjson.decode(current).generation > tonumber(ARGV[1]) then
  return redis.error_reply('STALE a later writer has written')
end
local built = redis.call('HGET', KEYS[2], 'm')
if not built then
  return redis.error_reply('MISSING the construction is gone')
end
if built ~= ARGV[2] then
  return redis.error_reply('STALE another writer rebuilds')
end
if redis.call('HLEN', KEYS[2]) ~= tonumber(ARGV[3]) + 1 then
  return redis.error_reply('MISSING a part of the construction is gone')
end
redis.call('PERSIST', KEYS[2])
redis.call('UNLINK', KEYS[1])
redis.call('RENAME', KEYS[2], KEYS[1])
return redis.status_reply('OK')

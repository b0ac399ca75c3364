-- Put fields into a bucket under construction.
-- KEYS    1  bucket under construction
-- ARGV    1  marker of the index transaction, JSON, byte for byte as begun
--         2  seconds after which an abandoned construction vanishes
--         3… field, value of each put
-- RETURNS    OK
-- ERRORS     STALE    a later writer rebuilds: give up
--            MISSING  the construction is gone: begin again
local marker = redis.call('HGET', KEYS[1], 'm')
if not marker then
  return redis.error_reply('MISSING the construction is gone')
end
if marker ~= ARGV[1] then
  return redis.error_reply('STALE another writer rebuilds')
end
for i = 3, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return redis.status_reply('OK')

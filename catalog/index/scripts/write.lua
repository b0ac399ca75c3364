-- Put and remove fields of one bucket that is built, in a writer's turn.
-- KEYS    1  bucket
-- ARGV    1  catalog
--         2  generation of the turn
--         3  marker, JSON of both
--         4  number of puts
--         5… field, value of each put; then the fields to remove
-- RETURNS    OK
-- ERRORS     MISSING  the bucket is not built, or from another catalog: rebuild
--            STALE    a later turn has written: give up
local marker = redis.call('HGET', KEYS[1], 'm')
if not marker then
  return redis.error_reply('MISSING the bucket is not built')
end
local written = cjson.decode(marker)
if written.generation > tonumber(ARGV[2]) then
  return redis.error_reply('STALE a later turn has written')
end
if written.catalog ~= ARGV[1] then
  return redis.error_reply('MISSING the bucket is of another catalog')
end
local last = 4 + 2 * tonumber(ARGV[4])
for i = 5, last, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
for i = last + 1, #ARGV do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
redis.call('HSET', KEYS[1], 'm', ARGV[3])
return redis.status_reply('OK')

-- The scripts of catalog.index.drain, each behind a line with its name. Each may be sent twice.
-- A full Redis refuses a script whose first write may take memory, but runs a script that has begun
-- to its end. So what frees memory comes first.

-- name: write
-- Put and remove fields of a complete bucket.
-- KEYS    1  bucket
-- ARGV    1  marker that the bucket must have
--         2  marker of this write
--         3  number of fields to remove
--         4… fields to remove; then field, value of each put
-- RETURNS    OK
-- ERRORS     LOST  the bucket has another marker: others have written, or Redis has lost writes
local marker = redis.call('HGET', KEYS[1], 'm')
if marker ~= ARGV[1] and marker ~= ARGV[2] then
  return redis.error_reply('LOST the bucket has another marker')
end
redis.call('HDEL', KEYS[1], 'm')
local last = 3 + tonumber(ARGV[3])
for i = 4, last do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
for i = last + 1, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'm', ARGV[2])
return redis.status_reply('OK')

-- name: finish
-- Put a finished construction in the place of its bucket.
-- KEYS    1  bucket
--         2  bucket under construction
-- ARGV    1  marker that the bucket must have; empty if it must not exist
--         2  marker of the rebuild
--         3  number of fields that were put into the construction
-- RETURNS    OK
-- ERRORS     LOST  the bucket has another marker, or a part of the construction is gone
local marker = redis.call('HGET', KEYS[1], 'm') or ''
if marker == ARGV[2] then
  return redis.status_reply('OK')
end
local count = redis.call('HLEN', KEYS[2])
if marker ~= ARGV[1] or count ~= tonumber(ARGV[3]) then
  return redis.error_reply('LOST another writer has written, or a part is gone')
end
redis.call('UNLINK', KEYS[1])
if count > 0 then
  redis.call('PERSIST', KEYS[2])
  redis.call('RENAME', KEYS[2], KEYS[1])
end
redis.call('HSET', KEYS[1], 'm', ARGV[2])
return redis.status_reply('OK')

-- name: announce
-- Announce to readers which fields a write has changed.
-- KEYS    1  stream of changes
-- ARGV    1  messages to keep, about    2  generation    3  keys, JSON, or * for all
-- RETURNS    the message's id
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])
return redis.call('XADD', KEYS[1], '*', 'generation', ARGV[2], 'keys', ARGV[3])

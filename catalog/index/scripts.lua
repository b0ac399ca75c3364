-- The scripts of catalog.index.store, each behind a line with its name.

-- name: write
-- Put and remove fields of a complete bucket, in an index transaction. May be sent twice.
-- KEYS    1  bucket
-- ARGV    1  marker of this write, JSON
--         2  generation, and
--         3  step of the last write that SQL knows of: the bucket must hold it
--         4  number of puts
--         5… field, value of each put; then the fields to remove
-- RETURNS    OK
-- ERRORS     MISSING  the bucket is not built, or from another catalog: rebuild
--            STALE    a later writer has written: give up
--            LAGGING  Redis has lost writes (it was restored from an older copy): rebuild
local function before(generation, step, other_generation, other_step)
  return generation < other_generation or (generation == other_generation and step < other_step)
end

local marker = redis.call('HGET', KEYS[1], 'm')
if not marker then
  return redis.error_reply('MISSING the bucket is not built')
end
local written, mine = cjson.decode(marker), cjson.decode(ARGV[1])
local step = written.step or 0
if before(mine.generation, mine.step or 0, written.generation, step) then
  return redis.error_reply('STALE a later writer has written')
end
if written.catalog ~= mine.catalog then
  return redis.error_reply('MISSING the bucket is of another catalog')
end
if before(written.generation, step, tonumber(ARGV[2]), tonumber(ARGV[3])) then
  return redis.error_reply('LAGGING the bucket lacks writes')
end

local last = 4 + 2 * tonumber(ARGV[4])
local growth = 0
for i = 5, last, 2 do
  growth = growth + #ARGV[i + 1] - redis.call('HSTRLEN', KEYS[1], ARGV[i])
end
-- Removals first: a full Redis refuses a script whose first write may take memory, but runs a script
-- that has begun to its end. So a write that frees memory succeeds.
for i = last + 1, #ARGV do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
if growth <= 0 then
  for i = 5, last, 2 do
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
for i = 5, last, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'm', ARGV[1])
return redis.status_reply('OK')

-- name: begin
-- Begin to rebuild one bucket beside the one that is read.
-- KEYS    1  bucket
--         2  bucket under construction
-- ARGV    1  generation of the index transaction
--         2  marker, JSON
--         3  seconds after which an abandoned construction vanishes
-- RETURNS    OK
-- ERRORS     STALE  a later writer has written or rebuilds: give up
for i = 1, 2 do
  local marker = redis.call('HGET', KEYS[i], 'm')
  if marker and cjson.decode(marker).generation > tonumber(ARGV[1]) then
    return redis.error_reply('STALE a later writer has written')
  end
end
redis.call('UNLINK', KEYS[2])
redis.call('HSET', KEYS[2], 'm', ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[3])
return redis.status_reply('OK')

-- name: fill
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

-- name: finish
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

-- name: announce
-- Announce to readers which fields a write has changed.
-- KEYS    1  stream of changes
-- ARGV    1  messages to keep, about
--         2  generation    3  step    4  keys, JSON, or * for all
-- RETURNS    the message's id
--
-- The stream is trimmed first: a full Redis runs a script to its end once a write has freed memory.
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])
return redis.call('XADD', KEYS[1], '*', 'generation', ARGV[2], 'step', ARGV[3], 'keys', ARGV[4])

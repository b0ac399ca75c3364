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

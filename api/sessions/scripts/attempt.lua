-- Count an attempt under each key, unless one of them is full.
-- KEYS: the counters. ARGV: the window in ms, then the most that each counter takes.
-- Returns 0 when it was counted, else the ms until the last full counter starts anew.
local wait = 0
for i, key in ipairs(KEYS) do
  if tonumber(redis.call('GET', key) or '0') >= tonumber(ARGV[i + 1]) then
    wait = math.max(wait, redis.call('PTTL', key), 1)
  end
end
if wait > 0 then
  return wait
end
for _, key in ipairs(KEYS) do
  if redis.call('INCR', key) == 1 then
    redis.call('PEXPIRE', key, ARGV[1])
  end
end
return 0

-- Count an attempt, unless there were too many.
-- KEYS: the counter. ARGV: the window in ms, the most attempts in it.
-- Returns 0 if the attempt was counted, else the ms until the counter starts anew.
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[2]) then
  return math.max(redis.call('PTTL', KEYS[1]), 1)
end
if redis.call('INCR', KEYS[1]) == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 0

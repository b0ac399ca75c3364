-- Subtract an attempt, if the counter still has it.
-- KEYS: the counter.
if tonumber(redis.call('GET', KEYS[1]) or '0') > 0 then
  return redis.call('DECR', KEYS[1])
end
return 0

-- Take an attempt off again, if it still counts.
-- KEYS: the counter.
if tonumber(redis.call('GET', KEYS[1]) or '0') > 0 then
  return redis.call('DECR', KEYS[1])
end
return 0

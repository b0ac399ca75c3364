-- Adds to the sums of a day, and keeps them for a while.
--
-- KEYS    1: a hash of sums by field
-- ARGV    1: for how long the hash is kept (ms), from now on
--         2: how many fields it may have; then fields that begin with "c:" are not added any more
--         then pairs: a field, and what is added to it (above 0)

local room = tonumber(ARGV[2]) - redis.call('HLEN', KEYS[1])
for i = 3, #ARGV, 2 do
  local field, amount = ARGV[i], ARGV[i + 1]
  if room > 0 or string.sub(field, 1, 2) ~= 'c:' or redis.call('HEXISTS', KEYS[1], field) == 1 then
    if redis.call('HINCRBY', KEYS[1], field, amount) == tonumber(amount) then
      room = room - 1
    end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])

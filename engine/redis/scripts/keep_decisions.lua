-- Keeps the last decisions of devices, the newest first.
--
-- KEYS    one a decision; a device may come several times, in the order of its decisions
-- ARGV    1: the most decisions of a device
--         2: for how long they are kept (ms), from the last one on
--         then one a decision: what is kept

local last = tonumber(ARGV[1]) - 1
for i, key in ipairs(KEYS) do
  redis.call('LPUSH', key, ARGV[i + 2])
  redis.call('LTRIM', key, 0, last)
  redis.call('PEXPIRE', key, ARGV[2])
end

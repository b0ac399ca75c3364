-- Stores the last decisions about devices, the newest first.
--
-- KEYS    one for each decision: its device, which may occur several times, in order
-- ARGV    1: the most decisions about a device
--         2: for how long they are kept (ms), from the last one on
--         then one for each decision: its value

local last = tonumber(ARGV[1]) - 1
for i, key in ipairs(KEYS) do
  redis.call('LPUSH', key, ARGV[i + 2])
  redis.call('LTRIM', key, 0, last)
  redis.call('PEXPIRE', key, ARGV[2])
end

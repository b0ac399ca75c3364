-- Gives claims back, or shortens them, for their owner alone. claim.lua describes the values.
--
-- KEYS    one for each claim: its device
-- ARGV    one for each claim: 19 digits campaign; 16 bytes owner; 14 digits detected_at (epoch ms,
--         the whole second counts); 14 digits delay (ms); 14 digits keep (ms): for how long from
--         detected_at on the claim denies others, less than the delay; 0 gives it back
-- RETURNS one for each claim: 1 if it changed, 0 if the owner does not hold it (any more) or it was
--         shortened before
--
-- A claim is shortened by moving its grant back in time, by the difference of delay and keep. The
-- grant stays after the one before it, so the list stays in order of time.

local UNTIL = 14
local ENTRY = 30

local function find(claim, owner)
  for from = #claim - ENTRY + 1, UNTIL + 1, -ENTRY do
    if string.sub(claim, from, from + 15) == owner then
      return from, tonumber(string.sub(claim, from + 16, from + 29))
    end
  end
end

local replies = {}
for i, key in ipairs(KEYS) do
  local campaign = tonumber(string.sub(ARGV[i], 1, 19))
  local owner = string.sub(ARGV[i], 20, 35)
  local at = tonumber(string.sub(ARGV[i], 36, 49))
  local delay = tonumber(string.sub(ARGV[i], 50, 63))
  local keep = tonumber(string.sub(ARGV[i], 64, 77))
  local claim = redis.call('HGET', key, campaign)
  local from, granted_at
  if claim then
    from, granted_at = find(claim, owner)
  end
  replies[i] = 0
  if from and keep == 0 then
    claim = string.sub(claim, 1, from - 1) .. string.sub(claim, from + ENTRY)
    replies[i] = 1
  elseif from and keep < delay and math.floor(granted_at / 1000) == math.floor(at / 1000) then
    local moved = granted_at - (delay - keep)
    if from > UNTIL + 1 then
      moved = math.max(moved, tonumber(string.sub(claim, from - 14, from - 1)))
    end
    local entry = owner .. string.format('%014.0f', math.max(0, moved))
    claim = string.sub(claim, 1, from - 1) .. entry .. string.sub(claim, from + ENTRY)
    replies[i] = 1
  end
  if replies[i] == 1 and #claim == UNTIL then
    redis.call('HDEL', key, campaign)
  elseif replies[i] == 1 then
    redis.call('HSET', key, campaign, claim)
  end
end
return replies

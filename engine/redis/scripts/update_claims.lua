-- Gives claims back, or shortens them, for the owner alone. What is kept is described in claim.lua.
--
-- KEYS    the device, one a claim
-- ARGV    one a claim: 19 digits campaign; 16 bytes owner; 14 digits detected_at (epoch ms, of which
--         the whole second counts); 14 digits delay (ms); 14 digits keep (ms): for how long it is to
--         forbid from detected_at on, less than the delay; 0 gives it back
-- RETURNS one a claim: 1 changed, 0 the owner holds no such claim (any more), or it was shortened
--         before
--
-- A grant that is to forbid for less is moved back in time: by as much as its delay is too long.
-- It stays behind the grant before it, so that the list stays in order of time.

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

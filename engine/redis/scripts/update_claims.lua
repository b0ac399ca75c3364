-- Gives claims back, or shortens them, for the owner alone. The values are those of claim.lua.
--
-- KEYS    one a claim
-- ARGV    one a claim: 16 bytes owner; 14 digits detected_at (epoch ms, of which the whole second
--         counts); 14 digits delay (ms); 14 digits keep (ms): for how long it is to forbid from
--         detected_at on, less than the delay; 0 gives it back
-- RETURNS one a claim: 1 changed, 0 the owner holds no such claim (any more), or it was shortened
--         before
--
-- A grant that is to forbid for less is moved back in time: by as much as its delay is too long.
-- It stays behind the grant before it, so that the list stays in order of time.

local ENTRY = 30

local function find(grants, owner)
  for from = #grants - ENTRY + 1, 1, -ENTRY do
    if string.sub(grants, from, from + 15) == owner then
      return from, tonumber(string.sub(grants, from + 16, from + 29))
    end
  end
end

local replies = {}
for i, key in ipairs(KEYS) do
  local owner = string.sub(ARGV[i], 1, 16)
  local at = tonumber(string.sub(ARGV[i], 17, 30))
  local delay = tonumber(string.sub(ARGV[i], 31, 44))
  local keep = tonumber(string.sub(ARGV[i], 45, 58))
  local grants = redis.call('GET', key)
  local from, granted_at
  if grants then
    from, granted_at = find(grants, owner)
  end
  replies[i] = 0
  if from and keep == 0 then
    grants = string.sub(grants, 1, from - 1) .. string.sub(grants, from + ENTRY)
    replies[i] = 1
  elseif from and keep < delay and math.floor(granted_at / 1000) == math.floor(at / 1000) then
    local moved = granted_at - (delay - keep)
    if from > 1 then
      moved = math.max(moved, tonumber(string.sub(grants, from - 14, from - 1)))
    end
    local entry = owner .. string.format('%014.0f', math.max(0, moved))
    grants = string.sub(grants, 1, from - 1) .. entry .. string.sub(grants, from + ENTRY)
    replies[i] = 1
  end
  if replies[i] == 1 and grants == '' then
    redis.call('DEL', key)
  elseif replies[i] == 1 then
    redis.call('SET', key, grants, 'KEEPTTL')
  end
end
return replies

-- Takes claims for a batch: one campaign to one device, no more often than the campaign's delay.
--
-- KEYS    one a claim asked for, in the order of the records
-- ARGV    1: now (epoch ms)
--         2: retain (ms): how long a grant is remembered beyond its delay, so that a record that
--            comes late, or the same one again after a crash, finds it
--         then one a claim: 16 bytes owner, 14 digits detected_at (epoch ms), 14 digits delay (ms)
-- RETURNS one a claim: 0 granted (now, or to this owner before),
--         else the detected_at (epoch ms) of a grant that forbids it, one not after it if there is
--
-- A value is the list of grants: 16 bytes owner, 14 digits detected_at. Each lies at least the delay
-- behind the one before, so the list is in order of time. It has one entry unless the delay is
-- shorter than what may be delivered again.

local ENTRY = 30
local MOST_ENTRIES = 1024

-- From the newest on, for only a late or repeated record has to look further.
local function find(grants, owner, at, delay)
  local forbids = 0
  for from = #grants - ENTRY + 1, 1, -ENTRY do
    local granted_at = tonumber(string.sub(grants, from + 16, from + 29))
    if granted_at == at and string.sub(grants, from, from + 15) == owner then
      return true, 0
    end
    if at < granted_at + delay and (forbids == 0 or granted_at <= at) then
      forbids = granted_at
    end
    if granted_at < at then
      break
    end
  end
  return false, forbids
end

local function prune(grants, now, lasts)
  local from = 1
  while from <= #grants do
    local granted_at = tonumber(string.sub(grants, from + 16, from + 29))
    if granted_at + lasts > now and #grants - from + 1 < MOST_ENTRIES * ENTRY then
      break
    end
    from = from + ENTRY
  end
  return string.sub(grants, from)
end

local now = tonumber(ARGV[1])
local retain = tonumber(ARGV[2])
local replies = {}
for i, key in ipairs(KEYS) do
  local wish = ARGV[i + 2]
  local owner = string.sub(wish, 1, 16)
  local at = tonumber(string.sub(wish, 17, 30))
  local delay = tonumber(string.sub(wish, 31, 44))
  local grants = redis.call('GET', key)
  local mine, forbids = false, 0
  if grants then
    mine, forbids = find(grants, owner, at, delay)
  end
  if not mine and forbids == 0 then
    local lasts = delay + retain
    grants = (grants and prune(grants, now, lasts) or '') .. string.sub(wish, 1, ENTRY)
    redis.call('SET', key, grants, 'PX', string.format('%.0f', math.max(1, at + lasts - now)))
  end
  replies[i] = forbids
end
return replies

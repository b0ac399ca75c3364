-- Takes claims for a batch: one campaign to one device, no more often than the campaign's delay.
--
-- KEYS    one a claim asked for, in the order of the records
-- ARGV    1: now (epoch ms)
--         2: retain (ms): how long a grant is remembered at least, so that the same record asking
--            again after a crash finds it
--         then three a claim: owner (16 bytes), detected_at (epoch ms), delay (ms)
-- RETURNS one a claim: 0 granted (now, or to this owner before),
--         else the detected_at (epoch ms) of the grant that forbids it
--
-- A value is the list of grants, oldest first: 16 bytes owner, 14 digits detected_at. It has one
-- entry unless the delay is shorter than what may be delivered again.

local ENTRY = 30
local MOST_ENTRIES = 64

local function find(grants, owner, at, delay)
  local forbids = 0
  for from = 1, #grants, ENTRY do
    if string.sub(grants, from, from + 15) == owner then
      return true, 0
    end
    local granted_at = tonumber(string.sub(grants, from + 16, from + 29))
    if at < granted_at + delay and granted_at > forbids then
      forbids = granted_at
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
  local owner = ARGV[3 * i]
  local at = tonumber(ARGV[3 * i + 1])
  local delay = tonumber(ARGV[3 * i + 2])
  local grants = redis.call('GET', key)
  local mine, forbids = false, 0
  if grants then
    mine, forbids = find(grants, owner, at, delay)
  end
  if not mine and forbids == 0 then
    local lasts = math.max(delay, retain)
    local grant = owner .. string.format('%014.0f', at)
    grants = (grants and prune(grants, now, lasts) or '') .. grant
    redis.call('SET', key, grants, 'PX', string.format('%.0f', math.max(1, at + lasts - now)))
  end
  replies[i] = forbids
end
return replies

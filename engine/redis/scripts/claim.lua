-- Takes claims for a batch: one campaign to one device, no more often than the campaign's delay.
--
-- KEYS    one a device
-- ARGV    1: now (epoch ms)
--         2: retain (ms): how long a grant is remembered beyond its delay, so that a record that
--            comes late, or the same one again after a crash, finds it
--         then one a device: "+" if all its claims are to be read, else "-"; then its claims in the
--         order of the records, each as WISH has it: campaign, owner, detected_at (epoch ms), delay
--         (ms)
-- RETURNS one a claim: 0 granted (now, or to this owner before),
--         else the detected_at (epoch ms) of a grant that forbids it, one not after it if there is;
--         then one a device with "+": campaigns and values in turn, as they were before; nothing if
--         the device has very many, or those before it had
--
-- A device is a hash, campaign -> claim: 14 digits until when it is needed (epoch ms), then the
-- list of grants: 16 bytes owner, 14 digits detected_at. Each lies at least the delay behind the one
-- before, so the list is in order of time. It has one entry unless the delay is shorter than what may
-- be delivered again.

local UNTIL = 14
local ENTRY = 30
local MOST_ENTRIES = 1023
local WISH = '>i8c16i8i8'
local WISH_BYTES = 40
local MOST_READ = 128 -- claims of a device
local MOST_READ_IN_ALL = 4096
local BETWEEN_SWEEPS = 64 -- claims that a device gets, until those needed no more are removed

-- From the newest on, for only a late or repeated record has to look further.
local function find(claim, owner, at, delay)
  local forbids = 0
  for from = #claim - ENTRY + 1, UNTIL + 1, -ENTRY do
    local granted_at = tonumber(string.sub(claim, from + 16, from + 29))
    if granted_at == at and string.sub(claim, from, from + 15) == owner then
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

local function grants_needed(claim, now, lasts)
  local from = UNTIL + 1
  while from <= #claim do
    local granted_at = tonumber(string.sub(claim, from + 16, from + 29))
    if granted_at + lasts > now and #claim - from + 1 < MOST_ENTRIES * ENTRY then
      break
    end
    from = from + ENTRY
  end
  return string.sub(claim, from)
end

local function sweep(key, now)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if tonumber(string.sub(all[i + 1], 1, UNTIL)) <= now then
      redis.call('HDEL', key, all[i])
    end
  end
end

local now = tonumber(ARGV[1])
local retain = tonumber(ARGV[2])
local replies, read, read_in_all = {}, {}, 0
for i, key in ipairs(KEYS) do
  local wishes = ARGV[i + 2]
  if string.sub(wishes, 1, 1) == '+' then
    local count = redis.call('HLEN', key)
    local few = count <= MOST_READ and read_in_all + count <= MOST_READ_IN_ALL
    read[#read + 1] = few and redis.call('HGETALL', key)
    read_in_all = read_in_all + (few and count or 0)
  end
  local needed, added = 0, 0
  for from = 2, #wishes, WISH_BYTES do
    local campaign, owner, at, delay = struct.unpack(WISH, wishes, from)
    local claim = redis.call('HGET', key, campaign)
    local mine, forbids = false, 0
    if claim then
      mine, forbids = find(claim, owner, at, delay)
    end
    if not mine and forbids == 0 then
      local lasts = delay + retain
      local before = claim and grants_needed(claim, now, lasts) or ''
      local written = string.format('%014.0f', at + lasts) .. before .. owner
        .. string.format('%014.0f', at)
      added = added + redis.call('HSET', key, campaign, written)
      needed = math.max(needed, at + lasts)
    end
    replies[#replies + 1] = forbids
  end
  if needed > 0 then
    local lives = math.max(1, needed - now)
    if lives > redis.call('PTTL', key) then
      redis.call('PEXPIRE', key, string.format('%.0f', lives))
    end
    if added > 0 and redis.call('HLEN', key) % BETWEEN_SWEEPS < added then
      sweep(key, now)
    end
  end
end
for _, claims in ipairs(read) do
  replies[#replies + 1] = claims
end
return replies

-- Takes claims for a batch: one campaign to one device, no more often than the campaign's delay.
--
-- KEYS    that of the first device; the others are in the same slot
-- ARGV    1: now (epoch ms)
--         2: retain (ms): how long a grant is remembered beyond its delay, for records that arrive
--            late or are delivered again after a crash
--         3: for each device the form DEVICE: bytes of its key, 1 to read all its claims or 0,
--         bytes of its company's caps (none: 0), bytes of its requests; then its key, the caps
--         (caps.lua) and its requests in the order of the records, in the form REQUEST: campaign,
--         owner (the notification id), detected_at (epoch ms), delay (ms; 0 takes no claim), and
--         1 if the caps count it, 2 if the notification may also be given back, else 0
-- RETURNS one for each request: 0 if it is granted (now, or to this owner before), else the
--         detected_at (epoch ms) of a grant that denies it: a grant not after it, if there is one;
--         or, if a cap denies it, a list: detections after the first time (epoch ms) and before
--         the second are denied too, the third is 1 if a place may be given back before;
--         then one for each device that is read: fields and values in turn, as before;
--         nothing if this device has very many, or the call has read very many already
--
-- A device is a hash, campaign -> claim: 14 digits for the time until which it is needed (epoch
-- ms), then the list of grants: 16 bytes owner, 14 digits detected_at. Each grant is at least the
-- delay after the one before, so the list is in order of time. It has one entry unless the delay is
-- shorter than the time in which records may be delivered again.

local ENTRY = 30
local MOST_ENTRIES = 1023
local REQUEST = '>i8c16i8i8I1'
local DEVICE = '>I2I1I1I4'
local MOST_READ = 1024 -- claims of a device
local MOST_READ_IN_CALL = 4096 -- claims of all its devices, so that no call blocks Redis for long
local BETWEEN_SWEEPS = 64 -- claims that a device gets before expired ones are removed

-- Searches from the newest grant on: only late or repeated records need older ones.
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
local replies, read, left = {}, {}, MOST_READ_IN_CALL
local packed, from = ARGV[3], 1
while from <= #packed do
  local key_bytes, is_read, cap_bytes, bytes, key_from = struct.unpack(DEVICE, packed, from)
  from = key_from + key_bytes + cap_bytes
  local caps_from, finish = key_from + key_bytes, from + bytes
  local key = string.sub(packed, key_from, caps_from - 1)
  local places = cap_bytes > 0 and read_places(key, string.sub(packed, caps_from, from - 1))
  if is_read == 1 then
    local held = redis.call('HLEN', key)
    if held <= MOST_READ and held <= left then
      read[#read + 1] = redis.call('HGETALL', key)
      left = left - held
    else
      read[#read + 1] = false
    end
  end
  local needed, added = 0, 0
  while from < finish do
    local campaign, owner, at, delay, counted
    campaign, owner, at, delay, counted, from = struct.unpack(REQUEST, packed, from)
    local claim = delay > 0 and redis.call('HGET', key, campaign)
    local mine, forbids = false, 0
    if claim then
      mine, forbids = find(claim, owner, at, delay)
    end
    if not mine and forbids == 0 and counted > 0 and not places:find(owner, at) then
      local before, is_free = places:room(at)
      if is_free then
        places:take(owner, at, before, counted - 1, retain)
      else
        forbids = places:refusal()
      end
    end
    if not mine and forbids == 0 and delay > 0 then
      local lasts = delay + retain
      local before = claim and grants_needed(claim, now, lasts) or ''
      local written = string.format('%014d', at + lasts) .. before .. owner
        .. string.format('%014d', at)
      added = added + redis.call('HSET', key, campaign, written)
      needed = math.max(needed, at + lasts)
    end
    replies[#replies + 1] = forbids
  end
  needed = math.max(needed, places and places:save(now, retain) or 0)
  if needed > 0 then
    keep_alive(key, needed, now)
    if added > 0 and redis.call('HLEN', key) % BETWEEN_SWEEPS < added then
      sweep(key, now)
    end
  end
end
for _, claims in ipairs(read) do
  replies[#replies + 1] = claims
end
return replies

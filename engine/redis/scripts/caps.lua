-- What a company's caps count of a device, for the scripts that follow. A cap allows at most so many
-- notifications within any stretch of event time.
--
-- Field k<company> of the device's hash has, as claims do, 14 digits for the time until which it is
-- needed; then a place for each notification, in order of time: the first 8 bytes of its owner, 6
-- bytes detected_at, and 1 if a call of the company's service may give it back, else 0. (Short,
-- because most of what a cap costs is the copying of this list.) A company's caps are packed: its
-- id, then for each cap the number and the stretch (ms).

local UNTIL = 14
local PLACE = 15
local OWNER = 8
local MOST_PLACES = 2047 -- no stretch has more than 1000

local Places = {}
Places.__index = Places

local met = {} -- the caps that this call has unpacked

local function unpack_caps(packed)
  local company, from = struct.unpack('>i8', packed)
  local caps = { field = 'k' .. string.format('%d', company), longest = 0, least = MOST_PLACES }
  while from <= #packed do
    local most, lasts
    most, lasts, from = struct.unpack('>I2i8', packed, from)
    caps[#caps + 1] = { most, lasts }
    caps.longest = math.max(caps.longest, lasts)
    caps.least = math.min(caps.least, most)
  end
  met[packed] = caps
  return caps
end

local function read_places(key, packed)
  local caps = met[packed] or unpack_caps(packed)
  local value = redis.call('HGET', key, caps.field)
  local places = { key = key, caps = caps, needed = 0, list = '', count = 0, newest = 0, added = '' }
  if value then
    places.needed = tonumber(string.sub(value, 1, UNTIL))
    places.list = string.sub(value, UNTIL + 1)
    places.count = #places.list / PLACE
    places.newest = struct.unpack('>I6', value, #value - 6)
  end
  places.newest_before = places.newest
  return setmetatable(places, Places)
end

-- Joins what was added to the list. The methods that read the list call it first; the others, which
-- are enough for nearly all notifications, do not copy the list.
function Places:join()
  if self.added ~= '' then
    self.list, self.added = self.list .. self.added, ''
  end
end

function Places:at(i)
  return (struct.unpack('>I6', self.list, i * PLACE - 6))
end

function Places:is_returnable(i)
  return string.sub(self.list, i * PLACE, i * PLACE) == '1'
end

-- The number of the owner's place, which was taken before this call, for a detection at this time or
-- a second later.
function Places:find(owner, at)
  if at > self.newest_before then
    return nil
  end
  self:join()
  owner = string.sub(owner, 1, OWNER)
  for i = self.count, 1, -1 do
    if self:at(i) < at then
      return nil
    elseif string.sub(self.list, i * PLACE - 14, i * PLACE - 7) == owner then
      return i
    end
  end
end

-- How many places are not later, and whether every cap allows one more at this time.
function Places:room(at)
  if at >= self.newest and self.count < self.caps.least then
    return self.count, true
  end
  self:join()
  local before = self.count
  while before > 0 and self:at(before) > at do
    before = before - 1
  end
  for _, cap in ipairs(self.caps) do
    local most, lasts = cap[1], cap[2]
    for i = math.max(1, before - most + 1), math.min(before + 1, self.count - most + 1) do
      if math.max(at, self:at(i + most - 1)) - math.min(at, self:at(i)) < lasts then
        return before, false
      end
    end
  end
  return before, true
end

-- Later detections are refused after the newest place, until the second of these times; 1 if a
-- place may be given back before.
function Places:refusal()
  self:join()
  local opens, brief = 0, 0
  for _, cap in ipairs(self.caps) do
    opens = self.count < cap[1] and opens or math.max(opens, self:at(self.count - cap[1] + 1) + cap[2])
  end
  for i = 1, self.count do
    brief = self:is_returnable(i) and 1 or brief
  end
  return { self:at(self.count), opens, brief }
end

-- Replaces the places from the first to the last number.
function Places:replace(first, last, by)
  self:join()
  self.list = string.sub(self.list, 1, (first - 1) * PLACE) .. by
    .. string.sub(self.list, last * PLACE + 1)
  self.count = #self.list / PLACE
  self.is_changed = true
end

-- Takes a place at this time, behind as many as are `before`.
function Places:take(owner, at, before, flag, retain)
  local place = string.sub(owner, 1, OWNER) .. struct.pack('>I6', at) .. flag
  if before < self.count then
    self:replace(before + 1, before, place)
  else
    self.added, self.count, self.newest = self.added .. place, before + 1, at
    self.is_changed = true
  end
  self.needed = math.max(self.needed, at + self.caps.longest + retain)
end

-- Writes the list without what has expired. Returns the time (epoch ms) until which it is needed.
function Places:save(now, retain)
  if not self.is_changed then
    return 0
  end
  local list, from, oldest = self.list, 1, now - self.caps.longest - retain
  while from < #list
    and (struct.unpack('>I6', list, from + OWNER) <= oldest or self.count > MOST_PLACES) do
    from, self.count = from + PLACE, self.count - 1
  end
  if self.count > 0 then
    list = string.format('%014d', self.needed) .. string.sub(list, from) .. self.added
    redis.call('HSET', self.key, self.caps.field, list)
  else
    redis.call('HDEL', self.key, self.caps.field)
  end
  return self.needed
end

local function keep_alive(key, needed, now)
  local lives = math.max(1, needed - now)
  if lives > redis.call('PTTL', key) then
    redis.call('PEXPIRE', key, string.format('%d', lives))
  end
end

-- What a company's caps count of a device, for the scripts that follow. A cap allows at most so many
-- notifications within any stretch of event time.
--
-- Field k<company> of the device's hash has, as claims do, 14 digits for the time until which it is
-- needed; then a place for each notification, in order of time: 16 bytes owner, 14 digits
-- detected_at, and 1 if a call of the company's service may give it back, else 0. A company's caps
-- are packed: its id, then for each cap the number and the stretch (ms).

local UNTIL = 14
local PLACE = 31
local MOST_PLACES = 2047 -- no stretch has more than 1000

local Places = {}
Places.__index = Places

local met = {} -- the caps that this call has unpacked

local function unpack_caps(packed)
  local company, from = struct.unpack('>i8', packed)
  local caps = { field = 'k' .. string.format('%.0f', company), longest = 0 }
  while from <= #packed do
    local most, lasts
    most, lasts, from = struct.unpack('>I2i8', packed, from)
    caps[#caps + 1] = { most, lasts }
    caps.longest = math.max(caps.longest, lasts)
  end
  met[packed] = caps
  return caps
end

local function read_places(key, packed)
  local caps = met[packed] or unpack_caps(packed)
  local value = redis.call('HGET', key, caps.field) or ''
  local places = { key = key, caps = caps, needed = tonumber(string.sub(value, 1, UNTIL)) or 0 }
  places.list = string.sub(value, UNTIL + 1)
  places.count = #places.list / PLACE
  return setmetatable(places, Places)
end

function Places:at(i)
  return tonumber(string.sub(self.list, i * PLACE - 14, i * PLACE - 1))
end

function Places:is_returnable(i)
  return string.sub(self.list, i * PLACE, i * PLACE) == '1'
end

-- The number of the owner's place, which was taken for a detection at this time or a second later.
function Places:find(owner, at)
  for i = self.count, 1, -1 do
    if self:at(i) < at then
      return nil
    elseif string.sub(self.list, i * PLACE - 30, i * PLACE - 15) == owner then
      return i
    end
  end
end

-- How many places are not later, and whether every cap allows one more at this time.
function Places:room(at)
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
  local list = self.list
  if first > self.count then -- nearly always; each part of a string is a string of its own
    self.list = list .. by
  else
    self.list = string.sub(list, 1, (first - 1) * PLACE) .. by .. string.sub(list, last * PLACE + 1)
  end
  self.count = #self.list / PLACE
  self.is_changed = true
end

function Places:take(owner, at, before, flag, now, retain)
  local lasts, expired = self.caps.longest + retain, 0
  while expired < before
    and (self:at(expired + 1) + lasts <= now or self.count - expired >= MOST_PLACES) do
    expired = expired + 1
  end
  self.needed = math.max(self.needed, at + lasts)
  self:replace(before + 1, before, owner .. string.format('%014.0f', at) .. flag)
  if expired > 0 then
    self:replace(1, expired, '')
  end
end

-- Returns the time (epoch ms) until which the list is needed.
function Places:save()
  if self.is_changed and self.count == 0 then
    redis.call('HDEL', self.key, self.caps.field)
  elseif self.is_changed then
    redis.call('HSET', self.key, self.caps.field, string.format('%014.0f', self.needed) .. self.list)
  end
  return self.is_changed and self.needed or 0
end

local function keep_alive(key, needed, now)
  local lives = math.max(1, needed - now)
  if lives > redis.call('PTTL', key) then
    redis.call('PEXPIRE', key, string.format('%.0f', lives))
  end
end

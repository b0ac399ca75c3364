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

local function read_places(key, packed)
  local company, from = struct.unpack('>i8', packed)
  local places = setmetatable({ key = key, caps = {}, longest = 0 }, Places)
  places.field = 'k' .. string.format('%.0f', company)
  while from <= #packed do
    local most, lasts
    most, lasts, from = struct.unpack('>I2i8', packed, from)
    places.caps[#places.caps + 1] = { most, lasts }
    places.longest = math.max(places.longest, lasts)
  end
  local value = redis.call('HGET', key, places.field) or ''
  places.list, places.needed = string.sub(value, UNTIL + 1), string.sub(value, 1, UNTIL)
  places.count = #places.list / PLACE
  return places
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
  self.list = string.sub(list, 1, (first - 1) * PLACE) .. by .. string.sub(list, last * PLACE + 1)
  self.count = #self.list / PLACE
  if self.count == 0 then
    redis.call('HDEL', self.key, self.field)
  else
    redis.call('HSET', self.key, self.field, self.needed .. self.list)
  end
end

-- Returns the time (epoch ms) until which the list is needed.
function Places:take(owner, at, before, flag, now, retain)
  local lasts, expired = self.longest + retain, 0
  while expired < before
    and (self:at(expired + 1) + lasts <= now or self.count - expired >= MOST_PLACES) do
    expired = expired + 1
  end
  local needed = math.max(at, self:at(self.count) or at) + lasts
  self.needed = string.format('%014.0f', needed)
  local kept = string.sub(self.list, expired * PLACE + 1, before * PLACE)
  self:replace(1, before, kept .. owner .. string.format('%014.0f', at) .. flag)
  return needed
end

local function keep_alive(key, needed, now)
  local lives = math.max(1, needed - now)
  if lives > redis.call('PTTL', key) then
    redis.call('PEXPIRE', key, string.format('%.0f', lives))
  end
end

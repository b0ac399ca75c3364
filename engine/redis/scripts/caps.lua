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

local function read_places(key, packed)
  local company, from = struct.unpack('>i8', packed)
  local field = 'k' .. string.format('%.0f', company)
  local value = redis.call('HGET', key, field) or ''
  local places = { key = key, field = field, caps = {}, longest = 0 }
  places.needed, places.list = string.sub(value, 1, UNTIL), string.sub(value, UNTIL + 1)
  while from <= #packed do
    local most, lasts
    most, lasts, from = struct.unpack('>I2i8', packed, from)
    places.caps[#places.caps + 1] = { most, lasts }
    places.longest = math.max(places.longest, lasts)
  end
  return setmetatable(places, { __index = Places })
end

function Places:count()
  return #self.list / PLACE
end

function Places:at(i)
  return tonumber(string.sub(self.list, i * PLACE - 14, i * PLACE - 1))
end

-- The number of the owner's place, which was taken for a detection at this time or a second later.
function Places:find(owner, at)
  for i = self:count(), 1, -1 do
    if self:at(i) < at then
      return nil
    end
    if string.sub(self.list, i * PLACE - 30, i * PLACE - 15) == owner then
      return i
    end
  end
end

-- How many places are not later, and whether every cap allows one more at this time.
function Places:room(at)
  local count = self:count()
  local before = count
  while before > 0 and self:at(before) > at do
    before = before - 1
  end
  for _, cap in ipairs(self.caps) do
    local most, lasts = cap[1], cap[2]
    for i = math.max(1, before - most + 1), math.min(before + 1, count - most + 1) do
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
  local count, opens, brief = self:count(), 0, 0
  for _, cap in ipairs(self.caps) do
    if count >= cap[1] then
      opens = math.max(opens, self:at(count - cap[1] + 1) + cap[2])
    end
  end
  for i = 1, count do
    brief = self:is_returnable(i) and 1 or brief
  end
  return { self:at(count), opens, brief }
end

-- Returns the time (epoch ms) until which the list is needed.
function Places:take(owner, at, before, returnable, now, retain)
  local place = owner .. string.format('%014.0f', at) .. (returnable and '1' or '0')
  local cut, lasts = before * PLACE, self.longest + retain
  self.list = string.sub(self.list, 1, cut) .. place .. string.sub(self.list, cut + 1)
  local from = 1
  while self:at(from) + lasts <= now and from < self:count() or self:count() - from >= MOST_PLACES do
    from = from + 1
  end
  self.list = string.sub(self.list, (from - 1) * PLACE + 1)
  local needed = self:at(self:count()) + lasts
  self.needed = string.format('%014.0f', needed)
  self:replace(self.list)
  return needed
end

function Places:is_returnable(i)
  return string.sub(self.list, i * PLACE, i * PLACE) == '1'
end

function Places:confirm(i)
  self:replace(string.sub(self.list, 1, i * PLACE - 1) .. '0' .. string.sub(self.list, i * PLACE + 1))
end

function Places:give_back(i)
  self:replace(string.sub(self.list, 1, (i - 1) * PLACE) .. string.sub(self.list, i * PLACE + 1))
end

function Places:replace(list)
  if list == '' then
    redis.call('HDEL', self.key, self.field)
  else
    redis.call('HSET', self.key, self.field, self.needed .. list)
  end
end

local function keep_alive(key, needed, now)
  local lives = math.max(1, needed - now)
  if lives > redis.call('PTTL', key) then
    redis.call('PEXPIRE', key, string.format('%.0f', lives))
  end
end

-- Gives a claim back, shortens or confirms it, for its owner alone. claim.lua describes the values.
--
-- KEYS    its device
-- ARGV    campaign; owner; detected_at (epoch ms, the whole second counts); delay (ms); keep (ms): for
--         how long from detected_at on the claim denies others; 0 gives it back; the delay confirms
--         it: an owner that lost it gets it again, unless another grant denies that;
--         what becomes of the notification's place in the company's caps, and these (caps.lua; empty
--         if none counts it): sent confirms it, failed gives it back unless it was confirmed (a call
--         that is repeated after a crash may have been sent before), refused (by brokers) gives it
--         back; retain (ms), as in claim.lua
-- RETURNS 1 if it changed or is confirmed; 0 if the owner does not hold it (any more) or it was
--         shortened before
--
-- A claim is shortened by moving its grant back in time, by the difference of delay and keep. The one
-- before it is a delay older, so the list stays in order of time.

local ENTRY = 30
local SENT, FAILED = 'sent', 'failed'
local EARLIEST = -9999999999999 -- epoch ms in 14 characters, the year 1653

local function find(claim, owner)
  for from = #claim - ENTRY + 1, UNTIL + 1, -ENTRY do
    if string.sub(claim, from, from + 15) == owner then
      return from, tonumber(string.sub(claim, from + 16, from + 29))
    end
  end
end

-- Returns 1 unless another grant denies the claim.
local function take_again(key, campaign, claim, owner, at, delay, now, retain)
  local grants = string.sub(claim or '', UNTIL + 1)
  for from = 1, #grants, ENTRY do
    if at < tonumber(string.sub(grants, from + 16, from + 29)) + delay then
      return 0
    end
  end
  local needed = at + delay + retain
  local taken = string.format('%014d', needed) .. grants .. owner .. string.format('%014d', at)
  redis.call('HSET', key, campaign, taken)
  keep_alive(key, needed, now)
  return 1
end

local now = tonumber(redis.call('TIME')[1]) * 1000
local key, campaign, owner = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local at, delay, keep = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local fate, caps, retain = ARGV[6], ARGV[7], tonumber(ARGV[8])
local places = caps ~= '' and read_places(key, caps)
local place, before, is_free = places and places:find(owner, at), nil, true
if fate == SENT and not place then
  before, is_free = places:room(at)
end
local claim = delay > 0 and redis.call('HGET', key, campaign)
local from, granted_at
if claim then
  from, granted_at = find(claim, owner)
end
local reply = 0
local is_whole = from and math.floor(granted_at / 1000) == math.floor(at / 1000)
if not is_free or delay == 0 then
  reply = is_free and 1 or 0
elseif keep == delay and from then
  reply = is_whole and 1 or 0
elseif keep == delay then
  reply = take_again(key, campaign, claim, owner, at, delay, now, retain)
elseif from and keep == 0 then
  claim = string.sub(claim, 1, from - 1) .. string.sub(claim, from + ENTRY)
  reply = 1
elseif is_whole and keep < delay then
  local moved = granted_at - (delay - keep)
  -- A delay longer than the time since 1970 moves it before 1970; 0 would mean granted.
  moved = math.max(EARLIEST, moved == 0 and 1 or moved)
  local entry = owner .. string.format('%014d', moved)
  claim = string.sub(claim, 1, from - 1) .. entry .. string.sub(claim, from + ENTRY)
  reply = 1
end
if reply == 1 and keep < delay and #claim == UNTIL then
  redis.call('HDEL', key, campaign)
elseif reply == 1 and keep < delay then
  redis.call('HSET', key, campaign, claim)
end
if before and reply == 1 then
  places:take(owner, at, before, 0, retain)
elseif place and fate == SENT and reply == 1 then
  places:replace(place, place, string.sub(places.list, place * PLACE - 14, place * PLACE - 1) .. '0')
elseif place and (fate ~= FAILED or places:is_returnable(place)) then
  places:replace(place, place, '')
end
if places then
  keep_alive(key, places:save(now, retain), now)
end
return reply

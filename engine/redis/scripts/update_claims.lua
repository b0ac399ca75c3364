-- Gives claims back, shortens or confirms them, for their owner alone. claim.lua describes the
-- values.
--
-- KEYS    one for each claim: its device
-- ARGV    one for each claim: 19 digits campaign; 16 bytes owner; 14 digits detected_at (epoch ms,
--         the whole second counts); 14 digits delay (ms); 14 digits keep (ms): for how long from
--         detected_at on the claim denies others; 0 gives it back; the delay confirms it: an owner
--         that lost it gets it again, unless another grant denies that;
--         if caps count the notification: what becomes of its place, and the caps (caps.lua):
--         s confirms it (sent), f gives it back unless it was confirmed (failed: a call that is
--         repeated after a crash may have been sent before), r gives it back (refused by brokers);
--         then retain (ms), as in claim.lua
-- RETURNS one for each claim: 1 if it changed or is confirmed; 0 if the owner does not hold it (any
--         more) or it was shortened before
--
-- A claim is shortened by moving its grant back in time, by the difference of delay and keep. The one
-- before it is a delay older, so the list stays in order of time.

local ENTRY = 30
local SENT, FAILED = 's', 'f'
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
local retain = tonumber(ARGV[#ARGV])
local replies = {}
for i, key in ipairs(KEYS) do
  local campaign = tonumber(string.sub(ARGV[i], 1, 19))
  local owner = string.sub(ARGV[i], 20, 35)
  local at = tonumber(string.sub(ARGV[i], 36, 49))
  local delay = tonumber(string.sub(ARGV[i], 50, 63))
  local keep = tonumber(string.sub(ARGV[i], 64, 77))
  local fate, caps = string.sub(ARGV[i], 78, 78), string.sub(ARGV[i], 79)
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
  replies[i] = 0
  local is_whole = from and math.floor(granted_at / 1000) == math.floor(at / 1000)
  if not is_free or delay == 0 then
    replies[i] = is_free and 1 or 0
  elseif keep == delay and from then
    replies[i] = is_whole and 1 or 0
  elseif keep == delay then
    replies[i] = take_again(key, campaign, claim, owner, at, delay, now, retain)
  elseif from and keep == 0 then
    claim = string.sub(claim, 1, from - 1) .. string.sub(claim, from + ENTRY)
    replies[i] = 1
  elseif is_whole and keep < delay then
    local moved = granted_at - (delay - keep)
    -- A delay longer than the time since 1970 moves it before 1970; 0 would mean granted.
    moved = math.max(EARLIEST, moved == 0 and 1 or moved)
    local entry = owner .. string.format('%014d', moved)
    claim = string.sub(claim, 1, from - 1) .. entry .. string.sub(claim, from + ENTRY)
    replies[i] = 1
  end
  if replies[i] == 1 and keep < delay and #claim == UNTIL then
    redis.call('HDEL', key, campaign)
  elseif replies[i] == 1 and keep < delay then
    redis.call('HSET', key, campaign, claim)
  end
  if before and replies[i] == 1 then
    places:take(owner, at, before, 0, retain)
  elseif place and fate == SENT and replies[i] == 1 then
    places:replace(place, place, string.sub(places.list, place * PLACE - 14, place * PLACE - 1) .. '0')
  elseif place and (fate ~= FAILED or places:is_returnable(place)) then
    places:replace(place, place, '')
  end
  if places then
    keep_alive(key, places:save(now, retain), now)
  end
end
return replies

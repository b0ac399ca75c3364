-- Breakers of customers' services, shared by all connector workers. connectors/breaker.py explains
-- the rules.
--
-- KEYS    one for each report: the breaker of its company
-- ARGV    1: now (epoch ms)
--         2: window (calls)   3: failures that open it   4: pause (ms)   5: lease (ms)
--         6: forget (ms): the key's time to live
--         7: the name of the process that reports
--         then two for each report: purpose (tell, ask, passed, failed, leave);
--         outcomes since the last report, oldest first, 1 for a failure and 0 for none
-- RETURNS three for each report: 1 if open, 1 if the reporter is the prober, ms to wait before the
--         next request
--
-- A value is a hash: w the last outcomes, u open until (epoch ms; absent when closed), p the
-- prober, l the end of the prober's lease (epoch ms).

local now, window, failures = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local pause, lease, forget, name = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]

local function text(number)
  return string.format('%.0f', number)
end

local function count(key, outcomes, new)
  outcomes = string.sub(outcomes .. new, -window)
  local _, failed = string.gsub(outcomes, '1', '')
  if failed < failures then
    if new ~= '' then
      redis.call('HSET', key, 'w', outcomes)
    end
    return nil
  end
  redis.call('DEL', key)
  redis.call('HSET', key, 'u', text(now + pause))
  return now + pause
end

local replies = {}
for i, key in ipairs(KEYS) do
  local purpose, new = ARGV[6 + 2 * i], ARGV[7 + 2 * i]
  local state = redis.call('HMGET', key, 'w', 'u', 'p', 'l')
  local open_until, prober = tonumber(state[2] or nil), state[3] or ''
  local lease_until = tonumber(state[4] or nil) or 0
  if not open_until then
    open_until = count(key, state[1] or '', new)
    prober = ''
  elseif prober == name and purpose ~= 'tell' and purpose ~= 'ask' then
    prober = ''
    redis.call('HDEL', key, 'p', 'l')
    if purpose == 'passed' then
      redis.call('DEL', key)
      open_until = nil
    elseif purpose == 'failed' then
      open_until = now + pause
      redis.call('HSET', key, 'u', text(open_until))
    end
  end
  local probed = prober ~= '' and prober ~= name and now < lease_until
  local is_prober, wait = 0, 0
  if open_until and purpose == 'ask' and now >= open_until and not probed then
    is_prober = 1
    redis.call('HSET', key, 'p', name, 'l', text(now + lease))
  elseif open_until then
    wait = math.max(0, open_until - now, probed and lease_until - now or 0)
  end
  redis.call('PEXPIRE', key, forget)
  replies[3 * i - 2] = open_until and 1 or 0
  replies[3 * i - 1] = is_prober
  replies[3 * i] = wait
end
return replies

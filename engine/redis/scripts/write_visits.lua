-- Writes visits of one partition, all or nothing, if nobody else has taken the partition over.
-- KEYS[1]: the partition's hash. ARGV: the owner who must have it (empty: the hash must not exist),
-- the owner from now on (who may have it already: a call may be repeated), how many fields are
-- deleted, these, then fields with their values in turn.
local owner = redis.call('HGET', KEYS[1], 'owner')
if (owner or '') ~= ARGV[1] and owner ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[2])
local function call(command, first, last)
  for from = first, last, 1000 do
    redis.call(command, KEYS[1], unpack(ARGV, from, math.min(from + 999, last)))
  end
end
local kept = 4 + tonumber(ARGV[3])
call('HDEL', 4, kept - 1)
call('HSET', kept, #ARGV)
return 1

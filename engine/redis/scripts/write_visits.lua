-- Writes visits of one partition, all or nothing, if nobody else has taken the partition over.
-- KEYS[1]: the partition's hash. ARGV: the owner who must have it (empty: the hash must not exist),
-- the owner from now on (who may have it already: a call may be repeated), the number of fields to delete, these fields, then fields and values.
local owner = redis.call('HGET', KEYS[1], 'owner')
if (owner or '') ~= ARGV[1] and owner ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[2])
local begin = 4 + tonumber(ARGV[3])
for first = 4, begin - 1, 1000 do
  redis.call('HDEL', KEYS[1], unpack(ARGV, first, math.min(first + 999, begin - 1)))
end
for first = begin, #ARGV, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
return 1

-- Writes visits of one partition, all or nothing, if nobody else has taken the partition over.
-- KEYS[1]: the partition's hash. ARGV: the owner who must have it (empty: the hash must not exist),
-- the owner from now on (who may have it already: a call may be repeated), the fields to delete, and
-- fields with their values in turn: how many parts, their lengths, and the parts. (Redis takes a
-- million arguments at most, and all visits of a partition may end at once.)
local owner = redis.call('HGET', KEYS[1], 'owner')
if (owner or '') ~= ARGV[1] and owner ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[2])
local function call(command, packed)
  local count = struct.unpack('>I4', packed)
  local given, from = {}, 5 + 4 * count
  for number = 1, count do
    local size = struct.unpack('>I4', packed, 1 + 4 * number)
    given[#given + 1] = string.sub(packed, from, from + size - 1)
    from = from + size
    if #given == 1000 or number == count then
      redis.call(command, KEYS[1], unpack(given))
      given = {}
    end
  end
end
call('HDEL', ARGV[3])
call('HSET', ARGV[4])
return 1

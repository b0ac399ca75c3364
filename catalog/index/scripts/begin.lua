-- Begin to rebuild one bucket beside the one that is read.
-- KEYS    1  bucket
--         2  bucket under construction
-- ARGV    1  generation of the index transaction
--         2  marker, JSON
--         3  seconds after which an abandoned construction vanishes
-- RETURNS    OK
-- ERRORS     STALE  a later writer has written or rebuilds: give up
for i = 1, 2 do
  local marker = redis.call('HGET', KEYS[i], 'm')
  if marker and cjson.decode(marker).generation > tonumber(ARGV[1]) then
    return redis.error_reply('STALE a later writer has written')
  end
end
redis.call('UNLINK', KEYS[2])
redis.call('HSET', KEYS[2], 'm', ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[3])
return redis.status_reply('OK')

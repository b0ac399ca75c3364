-- Announce to readers which fields a write has changed.
-- KEYS    1  stream of changes
-- ARGV    1  messages to keep, about
--         2  generation    3  step    4  keys, JSON, or * for all
-- RETURNS    the message's id
--
-- The stream is trimmed first: a full Redis runs a script to its end once a write has freed memory.
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])
return redis.call('XADD', KEYS[1], '*', 'generation', ARGV[2], 'step', ARGV[3], 'keys', ARGV[4])

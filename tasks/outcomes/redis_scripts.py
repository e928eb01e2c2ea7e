"""Keys and scripts of the outcomes in Redis.

An answered query is a hash with its data and vectors, its outcomes are another hash. Sorted sets
list queries by time and by their last change, sets list the queries of a day.
"""

from __future__ import annotations

from skills.outcomes.codec import OWNER_FIELD, REPORTED_FIELD
from skills.outcomes.model import SECONDS_PER_DAY
from tasks.broker.redis_connection import PREFIX
from tasks.outcomes.protocol import MAX_OUTCOMES_PER_QUERY

ANSWER = PREFIX + "answer:"
"""A hash per query: its answer and its day, its owner, a vector per model, and until when accepted
outcomes were withdrawn."""
ANSWERS = PREFIX + "answers"
"""Queries by the time of their answer."""
ANSWERED_ON = PREFIX + "answered-on:"
"""A set per day of the queries that were answered."""
SESSION = PREFIX + "session:"
"""Queries of a session by the time of their answer."""
OUTCOMES = PREFIX + "outcomes:"
"""A hash per query: its outcomes by key."""
REPORTED_ON = PREFIX + "outcomes-on:"
"""A set per day of the queries with outcomes reported on that day."""
REPORT_DAYS = PREFIX + "outcome-days"
"""The days on which outcomes were reported."""
OWNERS = PREFIX + "outcome-owners"
"""Number of outcomes by owner."""
EPOCH = PREFIX + "outcome-epoch"
CHANGES = PREFIX + "outcome-changes"
"""Queries by the epoch of the last change of their outcomes."""
TOMBSTONES = PREFIX + "outcome-tombstones"
"""Forgotten queries by the time of their deletion."""
VERSIONS = PREFIX + "usage-versions"
"""Version by day of the answer; `usage-saved` has that of the stored usage."""
SAVED = PREFIX + "usage-saved"
USAGE = PREFIX + "usage"
PRUNED = PREFIX + "usage-pruned"
"""Days whose queries are deleted, or are being deleted."""
CONTRIBUTORS = PREFIX + "contributors"
RECORDED = PREFIX + "answers-recorded-until"


ADD_ANSWER = f"""
if redis.call('SISMEMBER', '{PRUNED}', ARGV[5]) == 1 then return 0 end
if redis.call('ZSCORE', '{TOMBSTONES}', ARGV[1]) then return 0 end
if redis.call('HSETNX', '{ANSWER}' .. ARGV[1], 'a', ARGV[2]) == 0 then return 0 end
redis.call('HSET', '{ANSWER}' .. ARGV[1], 'w', ARGV[3], 'd', ARGV[5])
redis.call('ZADD', '{ANSWERS}', ARGV[4], ARGV[1])
redis.call('SADD', '{ANSWERED_ON}' .. ARGV[5], ARGV[1])
redis.call('HINCRBY', '{VERSIONS}', ARGV[5], 1)
if ARGV[6] ~= '' then redis.call('ZADD', '{SESSION}' .. ARGV[6], ARGV[4], ARGV[1]) end
return 1
"""
"""ARGV: query id, data, owner, time, day, name of the session's set or ''."""

ADD_OUTCOMES = f"""
for at = 2, #ARGV, 5 do
    local answered = redis.call('HGET', '{ANSWER}' .. ARGV[at], 'd')
    if not answered or redis.call('SISMEMBER', '{PRUNED}', answered) == 1 then
        return {{0, ARGV[at], ''}}
    end
end
local accepted, reports = tonumber(ARGV[1]), {{}}
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
for at = 2, #ARGV, 5 do
    local query, key = unpack(ARGV, at, at + 1)
    local withdrawn = tonumber(redis.call('HGET', '{ANSWER}' .. query, 'x') or '0')
    -- If the clock was set back, a time ahead is that of a withdrawal before what came until now.
    local is_later = accepted > withdrawn or (accepted <= now and now < withdrawn)
    if is_later and redis.call('HEXISTS', '{OUTCOMES}' .. query, key) == 0 then
        reports[query] = reports[query] or {{}}
        reports[query][key] = ARGV[at + 3]
    end
end
for query, owners in pairs(reports) do
    local counts = {{}}
    for _, owner in pairs(owners) do counts[owner] = (counts[owner] or 0) + 1 end
    for _, data in ipairs(redis.call('HVALS', '{OUTCOMES}' .. query)) do
        local owner = cjson.decode(data)[{OWNER_FIELD + 1}]
        if counts[owner] then counts[owner] = counts[owner] + 1 end
    end
    for _, count in pairs(counts) do
        if count > {MAX_OUTCOMES_PER_QUERY} then return {{0, '', query}} end
    end
end
local new = 0
for at = 2, #ARGV, 5 do
    local query, key, day, owner, data = unpack(ARGV, at, at + 4)
    local is_new = reports[query] and reports[query][key]
    if is_new and redis.call('HSETNX', '{OUTCOMES}' .. query, key, data) == 1 then
        new = new + 1
        redis.call('ZADD', '{CHANGES}', redis.call('INCR', '{EPOCH}'), query)
        redis.call('SADD', '{REPORTED_ON}' .. day, query)
        redis.call('SADD', '{REPORT_DAYS}', day)
        redis.call('HINCRBY', '{VERSIONS}', redis.call('HGET', '{ANSWER}' .. query, 'd'), 1)
        redis.call('HINCRBY', '{OWNERS}', owner, 1)
    end
end
return {{new, '', ''}}
"""
"""ARGV: when the outcomes were accepted; query id, key, day, owner and data of each. Returns how
many were new, an unknown query id or '', and the id of a query with no room for further outcomes or
''."""

FORGET = f"""
local query, what, now, owner, session = unpack(ARGV)
local answered = redis.call('HGET', '{ANSWER}' .. query, 'd')
local stored = redis.call('HGETALL', '{OUTCOMES}' .. query)
if not answered or (what == 'unreported' and #stored > 0) then return 0 end
local deleted, gone, left = 0, {{}}, {{}}
for at = 1, #stored, 2 do
    local values = cjson.decode(stored[at + 1])
    local reporter, reported = values[{OWNER_FIELD + 1}], values[{REPORTED_FIELD + 1}]
    local day = (reported - math.fmod(reported, {SECONDS_PER_DAY})) / {SECONDS_PER_DAY}
    if what == 'reported' and reporter ~= owner then
        left[day] = true
    else
        gone[day] = true
        deleted = deleted + redis.call('HDEL', '{OUTCOMES}' .. query, stored[at])
        if redis.call('HINCRBY', '{OWNERS}', reporter, -1) <= 0 then
            redis.call('HDEL', '{OWNERS}', reporter)
        end
    end
end
for day in pairs(gone) do
    local name = string.format('%d', day)
    if not left[day] then redis.call('SREM', '{REPORTED_ON}' .. name, query) end
    if redis.call('EXISTS', '{REPORTED_ON}' .. name) == 0 then
        redis.call('SREM', '{REPORT_DAYS}', name)
    end
end
if deleted > 0 then
    redis.call('ZADD', '{CHANGES}', redis.call('INCR', '{EPOCH}'), query)
    redis.call('HINCRBY', '{VERSIONS}', answered, 1)
end
if what == 'outcomes' then
    local time = redis.call('TIME')
    redis.call('HSET', '{ANSWER}' .. query, 'x', time[1] .. '.' .. string.format('%06d', time[2]))
end
if what == 'reported' or what == 'outcomes' then return deleted end
redis.call('DEL', '{ANSWER}' .. query)
redis.call('ZREM', '{ANSWERS}', query)
redis.call('SREM', '{ANSWERED_ON}' .. answered, query)
redis.call('HINCRBY', '{VERSIONS}', answered, 1)
if session ~= '' then redis.call('ZREM', '{SESSION}' .. session, query) end
if what == 'all' then redis.call('ZADD', '{TOMBSTONES}', now, query) end
return deleted
"""
"""ARGV: query id, what, now, an owner, the name of the set of its session or ''.

what: `all`, its answer and all outcomes, so that it does not come back; `unreported`, its answer if
it has no outcomes; `outcomes`, the outcomes only; `reported`, the outcomes that the owner reported.
The script reads the stored outcomes itself, since more may arrive until it runs. Returns how many
outcomes were deleted.
"""

SAVE_VECTOR = f"""
if redis.call('EXISTS', '{ANSWER}' .. ARGV[1]) == 0 then return 0 end
if redis.call('HSETNX', '{ANSWER}' .. ARGV[1], ARGV[2], ARGV[3]) == 0 then return 0 end
if redis.call('EXISTS', '{OUTCOMES}' .. ARGV[1]) == 1 then
    redis.call('ZADD', '{CHANGES}', redis.call('INCR', '{EPOCH}'), ARGV[1])
end
return 1
"""
"""ARGV: query id, field, data. A forgotten query gets no vector."""

SAVE_DAY = f"""
if redis.call('SISMEMBER', '{PRUNED}', ARGV[1]) == 1 then return 0 end
local saved = tonumber(redis.call('HGET', '{SAVED}', ARGV[1]) or '0')
if saved >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', '{SAVED}', ARGV[1], ARGV[2])
redis.call('HSET', '{USAGE}', ARGV[1], ARGV[3])
return 1
"""
"""ARGV: day, version, usage."""

MARK_PRUNED = f"""
local version = redis.call('HGET', '{VERSIONS}', ARGV[1])
if version ~= redis.call('HGET', '{SAVED}', ARGV[1]) then return 0 end
return redis.call('SADD', '{PRUNED}', ARGV[1])
"""
"""ARGV: day. A day that changed since its usage was stored is not marked."""

MERGE_DAYS = f"""
local first, last = tonumber(ARGV[1]), tonumber(ARGV[2])
for _, day in ipairs(redis.call('HKEYS', '{VERSIONS}')) do
    local number = tonumber(day)
    if number >= first and number <= last
        and redis.call('SISMEMBER', '{PRUNED}', day) == 0 then return 0 end
end
for _, day in ipairs(redis.call('HKEYS', '{USAGE}')) do
    local number = tonumber(day)
    if number >= first and number <= last then redis.call('HDEL', '{USAGE}', day) end
end
redis.call('HSET', '{USAGE}', ARGV[1], ARGV[3])
redis.call('SADD', '{PRUNED}', ARGV[1])
return 1
"""
"""ARGV: first day, last day, usage."""

RECORD_UNTIL = f"""
local until_ = tonumber(redis.call('GET', '{RECORDED}') or '0')
if tonumber(ARGV[1]) > until_ then redis.call('SET', '{RECORDED}', ARGV[1]) end
"""

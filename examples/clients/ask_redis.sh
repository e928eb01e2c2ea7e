#!/bin/sh
# Ask skillbus through Redis with redis-cli, and print the beginning of the reply.
#
#   examples/clients/ask_redis.sh "which e-bikes get a fresh battery first?"
#
# The broker is that of REDIS_URL; a password is taken from REDISCLI_AUTH. The task must hold no
# double quotes and no backslashes here: a shell makes JSON no better than this.
set -eu
if [ $# != 1 ]; then
    echo 'usage: ask_redis.sh "TASK"' >&2
    exit 1
fi
url=${REDIS_URL:-redis://127.0.0.1:6379/0}
id=$(cat /proc/sys/kernel/random/uuid)
replies=skillbus.replies.$id
redis-cli -e --no-auth-warning -u "$url" XADD skillbus.events '*' \
    event "{\"specversion\": \"1.0\", \"id\": \"$id\", \"source\": \"examples/ask_redis.sh\",
            \"type\": \"skillbus.query.asked.v1\",
            \"data\": {\"task\": \"$1\", \"budget\": 2000, \"top\": 3}}" \
    reply_to "$replies" >/dev/null
reply=$(redis-cli -e --no-auth-warning -u "$url" XREAD BLOCK 60000 STREAMS "$replies" 0)
if [ -z "$reply" ]; then
    echo "no reply within a minute: is skillbus consume running?" >&2
    exit 1
fi
printf '%s\n' "$reply" | grep -o '"type":"[^"]*"\|"status":"[^"]*"\|"skill_id":"[^"]*"' | head -n 5

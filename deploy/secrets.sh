#!/bin/sh
# Makes the passwords of deploy/compose.yaml, one file each, in deploy/secrets. What is there stays.
#
# A server that reads its password in a form of its own gets a second file in that form. Files are
# readable for every user, since each container has another one; the folder around them is its
# owner's alone. Elasticsearch refuses a file that others may read, so that one belongs to the user
# whom Elasticsearch and skillbus run as, and .env names that user.
set -eu

cd "$(dirname "$0")"
umask 077
mkdir -p secrets

uid=$(id -u)
gid=$(id -g)
if [ "$uid" = 0 ]; then
    # No server runs as root.
    uid=1000 gid=1000
fi

# Standard input as a file, whole or not at all.
keep() {
    cat > "secrets/$1.new"
    mv -f "secrets/$1.new" "secrets/$1"
}

for server in elasticsearch neo4j redis rabbitmq; do
    if [ ! -s "secrets/${server}_password" ]; then
        od -An -N24 -tx1 /dev/urandom | tr -d ' \n' | keep "${server}_password"
    fi
done
printf 'neo4j/%s\n' "$(cat secrets/neo4j_password)" | keep neo4j_auth
printf 'requirepass %s\n' "$(cat secrets/redis_password)" | keep redis.conf
printf 'default_vhost = skillbus\ndefault_user = skillbus\ndefault_pass = %s\n' \
    "$(cat secrets/rabbitmq_password)" | keep rabbitmq.conf

chmod 444 secrets/*
chmod 400 secrets/elasticsearch_password
if [ "$(id -u)" = 0 ]; then
    chown "$uid:$gid" secrets/elasticsearch_password
fi

if [ ! -e .env ]; then
    printf 'CONTAINER_UID=%s\nCONTAINER_GID=%s\n' "$uid" "$gid" > .env
fi

#!/bin/sh
# Creates the passwords of deploy/compose.yaml, one file each, in deploy/secrets. Existing ones are
# kept.
#
# A server that reads its password in another format gets a second file in that format. The files are
# readable for every user, because each container runs as another one; the folder is readable only by
# its owner. Elasticsearch refuses a file that others can read, so its file belongs to the user that
# Elasticsearch and skillbus run as, which is written to .env.
set -eu

cd "$(dirname "$0")"
umask 077
export LC_ALL=C
mkdir -p secrets

uid=$(id -u)
gid=$(id -g)
if [ "$uid" = 0 ]; then
    # The servers do not run as root.
    uid=1000 gid=1000
fi

# Writes standard input to a file atomically.
keep() {
    cat > "secrets/$1.new"
    mv -f "secrets/$1.new" "secrets/$1"
}

for server in elasticsearch neo4j redis rabbitmq; do
    if [ ! -s "secrets/${server}_password" ]; then
        od -An -N24 -tx1 /dev/urandom | tr -d ' \n' | keep "${server}_password"
    fi
done
for server in elasticsearch neo4j redis rabbitmq; do
    # Others have a meaning in the files that the servers read, such as `#` and spaces.
    case $(cat "secrets/${server}_password") in
        *[!A-Za-z0-9._~-]*)
            echo "deploy/secrets/${server}_password: use letters, digits and . _ ~ - only" >&2
            exit 1
            ;;
    esac
done
if [ ! -s secrets/language_model_key ]; then
    # For an endpoint that wants no key; write your own into the file.
    printf 'none' | keep language_model_key
fi
printf 'neo4j/%s\n' "$(cat secrets/neo4j_password)" | keep neo4j_auth
printf 'requirepass %s\n' "$(cat secrets/redis_password)" | keep redis.conf
printf 'default_vhost = skillbus\ndefault_user = skillbus\ndefault_pass = %s\n' \
    "$(cat secrets/rabbitmq_password)" | keep rabbitmq.conf

chmod 644 secrets/*
chmod 600 secrets/elasticsearch_password
if [ "$(id -u)" = 0 ]; then
    chown "$uid:$gid" secrets/elasticsearch_password
fi

if ! grep -qs '^CONTAINER_UID=' .env; then
    # On a line of its own, whatever the file ends with.
    printf '\nCONTAINER_UID=%s\nCONTAINER_GID=%s\n' "$uid" "$gid" >> .env
fi

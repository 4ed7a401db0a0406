#!/bin/sh
# A CI job: runs an agent on a repository, prints its output, and exits with its exit code. Needs curl and python3.
#
#   BASE_URL=... ACCESS_TOKEN=ast_... AGENT_ID=... run-agent.sh REPOSITORY_URL [BRANCH] <prompt.txt
#
# GIT_TOKEN: the repository's token. TIMEOUT: seconds, default: the service's. JOB_ID: the same for all attempts of one
# job, so that a retry after a lost response does not start a second session.
set -eu

repository=${1:?'which repository?'}
branch=${2:-}
prompt=$(cat)
base_url=${BASE_URL:-http://127.0.0.1:8080}
: "${ACCESS_TOKEN:?}" "${AGENT_ID:?}"
here=$(cd "$(dirname "$0")" && pwd)
body=$(mktemp)
session=
follower=

clean_up() {
  rm -f "$body"
  if [ -n "$follower" ]; then kill "$follower" 2>/dev/null || true; fi
  # Also runs when the job is cancelled: stops the agent and removes its sandbox. The session and its output are kept.
  if [ -n "$session" ]; then call "/sessions/$session/terminate" -X POST >/dev/null 2>&1 || true; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Passes tokens on standard input and in a file, because every user on the machine can read arguments. Retries temporary
# errors, including the limit of concurrent sessions.
call() {
  path=$1
  shift
  printf 'Authorization: Bearer %s\n' "$ACCESS_TOKEN" |
    curl --silent --show-error --fail-with-body --retry 5 --retry-connrefused -H @- "$@" "$base_url$path"
}

REPOSITORY=$repository BRANCH=$branch PROMPT=$prompt python3 - >"$body" <<'END'
import json, os

env = os.environ
resource = {"type": "git_repository", "url": env["REPOSITORY"]}
if env.get("GIT_TOKEN"):
    resource["authorization_token"] = env["GIT_TOKEN"]
if env["BRANCH"]:
    resource["checkout"] = {"type": "branch", "name": env["BRANCH"]}
session = {"agent_id": env["AGENT_ID"], "prompt": env["PROMPT"], "resources": [resource]}
if env.get("TIMEOUT"):
    session["timeout"] = int(env["TIMEOUT"])
print(json.dumps(session))
END

key=${JOB_ID:-$(python3 -c 'import uuid; print(uuid.uuid4())')}
if ! answer=$(call /sessions -H 'Content-Type: application/json' -H "Idempotency-Key: $key" --data-binary "@$body"); then
  echo "Not accepted: $answer" >&2
  exit 1
fi
session=$(printf %s "$answer" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
echo "Session $session" >&2

# Runs in the background, because a shell handles no signals while it waits for a foreground program.
BASE_URL=$base_url python3 "$here/../events/follow_session.py" "$session" &
follower=$!
code=0
wait "$follower" || code=$?
follower=
exit "$code"

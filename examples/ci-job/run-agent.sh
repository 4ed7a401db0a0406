#!/bin/sh
# A CI job: runs an agent on a repository, shows what it prints, and exits as it did. Needs curl and python3.
#
#   BASE_URL=... ACCESS_TOKEN=ast_... AGENT_ID=... run-agent.sh REPOSITORY_URL [BRANCH] <prompt.txt
#
# GIT_TOKEN: what the repository asks for. TIMEOUT: seconds, by default the service's. JOB_ID: the same for all tries of
# one job, so that a try whose answer was lost starts nothing twice.
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
  # Also when the job is cancelled: the agent stops, and its sandbox goes. The session and what it printed stay.
  if [ -n "$session" ]; then call "/sessions/$session/terminate" -X POST >/dev/null 2>&1 || true; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Tokens go in on standard input and in a file: anybody on the machine can read arguments. What may pass is tried again,
# the limit of concurrent sessions included.
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

# In the background, because a shell that waits for a program in the foreground hears of no signal.
BASE_URL=$base_url python3 "$here/../events/follow_session.py" "$session" &
follower=$!
code=0
wait "$follower" || code=$?
follower=
exit "$code"

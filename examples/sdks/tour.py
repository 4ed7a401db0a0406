"""A tour of the client that openapi-generator makes for Python; docs/sdks.md says how. Prints what it found as JSON."""

import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "generated" / "python"), str(HERE.parent / "events")]

import agent_sessions as api
import urllib3
from follow_session import read_frames

configuration = api.Configuration(host=os.environ.get("BASE_URL", "http://127.0.0.1:8080"))
configuration.access_token = os.environ["ACCESS_TOKEN"]
client = api.ApiClient(configuration)
agents, environments, sessions = api.AgentsApi(client), api.EnvironmentsApi(client), api.SessionsApi(client)

SHELL = {"provider": "shell", "model": "shell/bash"}


class Frame:
    """What deserialize() takes apart."""

    def __init__(self, data):
        self.data = data


def follow(session_id, after):
    """Reads up to the end of the latest turn. follow_session() in the file of read_frames() needs no client."""
    cursor, output = after, ""
    while True:
        try:
            # Not read to the end by the client: it would wait for the end, and then take it for one JSON text.
            response = sessions.stream_session(
                session_id, last_event_id=cursor, _preload_content=False, _request_timeout=(5, 45)
            )
            for frame_id, data in read_frames(response):
                if frame_id is not None:
                    cursor = int(frame_id)
                event = client.deserialize(Frame(data), "SessionEvent")
                if isinstance(event, api.OutputEvent) and event.stream == api.StreamName.STDOUT:
                    output += event.data
                elif isinstance(event, api.ExitEvent):
                    return output, event.code, cursor
                elif isinstance(event, (api.ErrorEvent, api.TerminatedEvent)):
                    raise RuntimeError(event.message)
        except api.ApiException as error:
            # 5xx: the service or a proxy is restarting. Anything else stays as it is.
            if error.status < 500:
                raise
        except urllib3.exceptions.HTTPError:
            pass
        time.sleep(0.25)


def refusal(call, *args, **options):
    """The status and the body of a refusal."""
    try:
        call(*args, **options)
    except api.ApiException as error:
        return error.status, json.loads(error.body)
    return None


def reason_of(body):
    """Both shapes of a 422: the fields that are wrong, or a sentence."""
    detail = body["detail"]
    if isinstance(detail, str):
        return detail
    return [f"{'.'.join(map(str, item['loc']))} {item['type']}" for item in detail]


environment = environments.create_environment(
    api.CreateEnvironmentRequest(
        name="Tour",
        env_vars={"GREETING": "hello"},
        networking=api.UnrestrictedNetworkingInput(type="unrestricted"),
    )
)
assert isinstance(environment.networking, api.UnrestrictedNetworking)
agent = agents.create_agent(api.CreateAgentRequest(name="Tour", environment_id=environment.id, **SHELL))

# A dict: the class refuses by itself to be without a name.
missing = refusal(agents.create_agent, SHELL)
mismatch = refusal(agents.create_agent, api.CreateAgentRequest(name="Tour", provider="shell", model="gpt-5"))
conflict = refusal(agents.update_agent, agent.id, api.UpdateAgentRequest(version=7, name="New"))

long = sessions.create_session(api.CreateSessionRequest(agent_id=agent.id, prompt="sleep 600"))
limit = refusal(sessions.create_session, api.CreateSessionRequest(agent_id=agent.id, prompt="exit 0"))
sessions.terminate_session(long.id)
ended = refusal(sessions.terminate_session, long.id)

request = api.CreateSessionRequest(
    agent_id=agent.id, prompt='for i in $(seq 20); do echo "$GREETING $i"; sleep 0.05; done'
)
# Makes it safe to send the request again when its answer was lost.
key = f"tour-{agent.id}"
session = sessions.create_session(request, idempotency_key=key)
repeated = sessions.create_session(request, idempotency_key=key)

first, first_code, last = follow(session.id, 0)
sessions.prompt_session(session.id, api.PromptSessionRequest(prompt="echo again"))
second, second_code, _ = follow(session.id, last)
turns = sessions.list_session_turns(session.id).data

json.dump(
    {
        "keys": environment.env_var_keys,
        "missing": missing[0] == 422 and reason_of(missing[1]),
        "mismatch": mismatch[0] == 422 and reason_of(mismatch[1]),
        "conflict": [conflict[0], conflict[1]["detail"]],
        "repeated": repeated.id == session.id,
        "limit": limit,
        "outputs": [first, second],
        "codes": [first_code, second_code],
        "turns": [[turn.turn_number, turn.status] for turn in turns],
        "ended": [ended[0], ended[1]["detail"]],
    },
    sys.stdout,
)

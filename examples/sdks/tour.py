"""A tour of the Python client that openapi-generator generates; see docs/sdks.md. Prints its results as JSON."""

import io
import json
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "generated" / "python"), str(HERE.parent / "events")]

import agent_sessions as api
import urllib3
from follow_session import read_frames

configuration = api.Configuration(host=os.environ.get("BASE_URL", "http://127.0.0.1:8080"))
configuration.access_token = os.environ["ACCESS_TOKEN"]
repository_url = os.environ.get("REPOSITORY_URL", "https://github.com/octocat/Hello-World.git")
client = api.ApiClient(configuration)
agents, environments, sessions = api.AgentsApi(client), api.EnvironmentsApi(client), api.SessionsApi(client)
files = api.FilesApi(client)

SHELL = {"provider": "shell", "model": "shell/bash"}


class Frame:
    """What deserialize() takes apart."""

    def __init__(self, data):
        self.data = data


def follow(session_id, after):
    """Reads up to the end of the latest turn. follow_session() next to read_frames() needs no client."""
    cursor, output = after, ""
    while True:
        try:
            # Prevents the client from reading to the end: it would parse the whole stream as one JSON text.
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
            # 5xx: the service or a proxy is restarting. Other errors are permanent.
            if error.status < 500:
                raise
        except urllib3.exceptions.HTTPError:
            pass
        time.sleep(0.25)


def use_files(session_id):
    """Uploads bytes of every value, and reads them in all ways. The session has changed its repository."""
    path, content = "data/all bytes.bin", bytes(i * 7 % 256 for i in range(4096))
    written = files.write_session_file(session_id, path, content, mode="0600")
    listed = files.list_session_files(session_id, path="data")
    # The client stores what it downloads in a file of this folder, and returns its path.
    with tempfile.TemporaryDirectory() as configuration.temp_folder_path:
        whole = Path(files.read_session_file(session_id, path)).read_bytes()
        archive = Path(files.archive_session_files(session_id, path="data", format="tar.gz")).read_bytes()
        patch = Path(files.read_session_patch(session_id)).read_bytes()
    # Large files can be read piece by piece: part.stream().
    part = files.read_session_file(session_id, path, range="bytes=100-299", _preload_content=False)
    changes = files.list_session_changes(session_id)
    files.delete_session_file(session_id, path)
    gone = refusal(files.read_session_file, session_id, path)
    with tarfile.open(fileobj=io.BytesIO(archive)) as archived:
        archived_bytes = archived.extractfile("all bytes.bin").read()
    return {
        "written": [written.path, written.size, written.mode],
        "listed": [[file.path, file.type, file.size] for file in listed.data],
        "whole": whole == content,
        "part": [part.status, part.data == content[100:300]],
        "archived": archived_bytes == content,
        "changes": [
            [repository.mount_path, *([file.path, file.status] for file in repository.files)]
            for repository in changes.data
        ],
        "patched": b"+caf\xe9\n" in patch,
        "gone": [gone[0], gone[1]["detail"]],
    }


def refusal(call, *args, **options):
    """The status and the body of an error."""
    try:
        call(*args, **options)
    except api.ApiException as error:
        return error.status, json.loads(error.body)
    return None


def reason_of(body):
    """Reads both forms of a 422: a list of invalid fields, or a sentence."""
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

# Uses a dict, because the class itself requires a name.
missing = refusal(agents.create_agent, SHELL)
mismatch = refusal(agents.create_agent, api.CreateAgentRequest(name="Tour", provider="shell", model="gpt-5"))
conflict = refusal(agents.update_agent, agent.id, api.UpdateAgentRequest(version=7, name="New"))

long = sessions.create_session(api.CreateSessionRequest(agent_id=agent.id, prompt="sleep 600"))
limit = refusal(sessions.create_session, api.CreateSessionRequest(agent_id=agent.id, prompt="exit 0"))
sessions.terminate_session(long.id)
ended = refusal(sessions.terminate_session, long.id)

request = api.CreateSessionRequest(
    agent_id=agent.id,
    prompt='for i in $(seq 20); do echo "$GREETING $i"; sleep 0.05; done',
    resources=[api.ResourceInput(type="git_repository", url=repository_url, mount_path="app")],
)
# Makes it safe to retry the request after a lost response.
key = f"tour-{agent.id}"
session = sessions.create_session(request, idempotency_key=key)
repeated = sessions.create_session(request, idempotency_key=key)

first, first_code, last = follow(session.id, 0)
change = r"echo again; printf '\ncaf\351\n' >>app/README"
sessions.prompt_session(session.id, api.PromptSessionRequest(prompt=change))
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
        "files": use_files(session.id),
    },
    sys.stdout,
)

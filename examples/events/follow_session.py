#!/usr/bin/env python3
"""Follows a session: prints its agent's output, reconnects, and exits with the agent's exit code.

    BASE_URL=http://127.0.0.1:8080 ACCESS_TOKEN=ast_... python3 follow_session.py SESSION_ID [AFTER_ID]

Needs only Python 3.8. You can copy follow_session(); docs/events.md explains how it works.
"""

import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request

# Heartbeats come every 15 seconds. After three missing ones, the connection is considered dead.
SILENCE_SECONDS = 45
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 10
ENDED = {"exit", "error", "terminated"}


class Refused(Exception):
    """The service rejects the request, with its reason. Retrying does not help."""


def follow_session(base_url, token, session_id, after=0):
    """Yields each event of a session once, as a dict, up to the end of the latest turn.

    after is the id of the last event that was handled; 0 for none, so that all events are sent.
    """
    cursor = str(after)
    wait = FIRST_WAIT_SECONDS
    started = False
    turn = 0
    while True:
        request = urllib.request.Request(
            f"{base_url}/sessions/{session_id}/stream",
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "text/event-stream",
                "Last-Event-ID": cursor,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as response:
                for frame_id, data in read_frames(response):
                    event = json.loads(data)
                    # The cursor is the id line, not the member id: that of turn_start is the id of the output that
                    # follows.
                    if frame_id is not None:
                        cursor = frame_id
                    wait = FIRST_WAIT_SECONDS
                    # Each connection begins with start, and the previous one may have been cut between turn_start and
                    # its output.
                    if event["type"] == "start":
                        if started:
                            continue
                        started = True
                    if event["type"] == "turn_start":
                        if event["turn"] <= turn:
                            continue
                        turn = event["turn"]
                    yield event
                    if event["type"] in ENDED:
                        return
            # The stream ended without a terminal event, or with stale: the turn is still running, so reconnect.
        except urllib.error.HTTPError as error:
            # 5xx: the service or a proxy is restarting. Other errors are permanent.
            if error.code < 500:
                raise Refused(f"{error.code} {error.read().decode()}") from None
        except (OSError, http.client.HTTPException):
            pass  # The connection was cut, silent or refused.
        time.sleep(wait * random.uniform(0.5, 1))
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)


def read_frames(lines):
    """Parses frames into (id or None, data). A frame without its blank line was cut off, and is sent again."""
    frame_id, data = None, []
    for raw in lines:
        line = raw.rstrip(b"\r\n").decode()
        if line.startswith("id:"):
            frame_id = line[3:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].strip())
        elif line == "":
            if data:
                yield frame_id, "\n".join(data)
            frame_id, data = None, []
        # Other lines are comments such as ": heartbeat", or fields of a later version.


def main():
    session_id, after = (sys.argv[1:] + ["0"])[:2]
    base_url = os.environ.get("BASE_URL", "http://127.0.0.1:8080")
    # The exit code if the session ends without one.
    code = 1
    for event in follow_session(base_url, os.environ["ACCESS_TOKEN"], session_id, int(after)):
        if event["type"] == "output":
            out = sys.stdout if event["stream"] == "stdout" else sys.stderr
            out.write(event["data"])
            out.flush()
        elif event["type"] == "exit":
            code = event["code"]
        elif "message" in event:
            print(f"[{event['type']}] {event['message']}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()

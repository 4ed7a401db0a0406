import com.example.agentsessions.ApiClient;
import com.example.agentsessions.ApiException;
import com.example.agentsessions.api.AgentsApi;
import com.example.agentsessions.api.EnvironmentsApi;
import com.example.agentsessions.api.SessionsApi;
import com.example.agentsessions.model.*;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A tour of the client that openapi-generator makes for Java; docs/sdks.md says how. Prints what it found as JSON. */
public final class Tour {
  private static final String BASE_URL = System.getenv().getOrDefault("BASE_URL", "http://127.0.0.1:8080");
  private static final String TOKEN = System.getenv("ACCESS_TOKEN");

  private final ApiClient client = new ApiClient();
  private final ObjectMapper json = client.getObjectMapper();
  private final HttpClient http = HttpClient.newHttpClient();

  private record Followed(String output, int code, long last) {}

  private interface Call {
    Object run() throws ApiException;
  }

  public static void main(String[] args) throws Exception {
    new Tour().run();
  }

  private void run() throws Exception {
    var base = URI.create(BASE_URL);
    client.setScheme(base.getScheme()).setHost(base.getHost()).setPort(base.getPort());
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + TOKEN));
    var agents = new AgentsApi(client);
    var environments = new EnvironmentsApi(client);
    var sessions = new SessionsApi(client);

    var open = new UnrestrictedNetworkingInput();
    open.setType("unrestricted");
    var environment = environments.createEnvironment(
        new CreateEnvironmentRequest().name("Tour").envVars(Map.of("GREETING", "hello")).networking(open));
    if (!(environment.getNetworking() instanceof UnrestrictedNetworking)) throw new AssertionError();
    var agent = agents.createAgent(shell().name("Tour").environmentId(environment.getId()));

    var missing = refusal(() -> agents.createAgent(shell()));
    var mismatch = refusal(() -> agents.createAgent(shell().name("Tour").model("gpt-5")));
    var conflict = refusal(
        () -> agents.updateAgent(agent.getId(), new UpdateAgentRequest().version(7).name("New")));

    var sleep = new CreateSessionRequest().agentId(agent.getId()).prompt("sleep 600");
    var another = new CreateSessionRequest().agentId(agent.getId()).prompt("exit 0");
    var busy = sessions.createSession(sleep, null);
    var limit = refusal(() -> sessions.createSession(another, null));
    sessions.terminateSession(busy.getId());
    var ended = refusal(() -> sessions.terminateSession(busy.getId()));

    var request = new CreateSessionRequest().agentId(agent.getId())
        .prompt("for i in $(seq 20); do echo \"$GREETING $i\"; sleep 0.05; done");
    // Makes it safe to send the request again when its answer was lost.
    var key = "tour-" + agent.getId();
    var session = sessions.createSession(request, key);
    var repeated = sessions.createSession(request, key);

    var first = follow(session.getId(), 0);
    sessions.promptSession(session.getId(), new PromptSessionRequest().prompt("echo again"), null);
    var second = follow(session.getId(), first.last());
    var turns = sessions.listSessionTurns(session.getId()).getData();

    var found = new LinkedHashMap<String, Object>();
    found.put("keys", environment.getEnvVarKeys());
    found.put("missing", missing.getCode() == 422 ? reasonOf(missing) : false);
    found.put("mismatch", mismatch.getCode() == 422 ? reasonOf(mismatch) : false);
    found.put("conflict", List.of(conflict.getCode(), reasonOf(conflict)));
    found.put("repeated", repeated.getId().equals(session.getId()));
    var reached = json.readValue(limit.getResponseBody(), LimitReached.class);
    found.put("limit", List.of(limit.getCode(), reached));
    found.put("outputs", List.of(first.output(), second.output()));
    found.put("codes", List.of(first.code(), second.code()));
    found.put("turns", turns.stream().map(turn -> List.of(turn.getTurnNumber(), turn.getStatus())).toList());
    found.put("ended", List.of(ended.getCode(), reasonOf(ended)));
    System.out.print(json.writeValueAsString(found));
  }

  private static CreateAgentRequest shell() {
    return new CreateAgentRequest().provider("shell").model("shell/bash");
  }

  private static ApiException refusal(Call call) {
    try {
      call.run();
    } catch (ApiException refused) {
      return refused;
    }
    throw new AssertionError("not refused");
  }

  /** Both shapes of a 422: the fields that are wrong, or a sentence. */
  private Object reasonOf(ApiException refused) throws IOException {
    JsonNode detail = json.readTree(refused.getResponseBody()).get("detail");
    if (detail.isTextual()) return detail.asText();
    var items = json.readValue(refused.getResponseBody(), ValidationFailure.class).getDetail();
    return items.stream()
        .map(item -> item.getLoc().stream().map(String::valueOf).collect(Collectors.joining(".")) + " " + item.getType())
        .toList();
  }

  /** Reads up to the end of the latest turn. The generated streamSession() takes the stream for one JSON text. */
  private Followed follow(UUID id, long after) throws Exception {
    long cursor = after;
    var output = new StringBuilder();
    while (true) {
      var request = HttpRequest.newBuilder(URI.create(BASE_URL + "/sessions/" + id + "/stream"))
          .header("Authorization", "Bearer " + TOKEN)
          .header("Last-Event-ID", Long.toString(cursor))
          .build();
      try {
        HttpResponse<Stream<String>> response = http.send(request, HttpResponse.BodyHandlers.ofLines());
        int status = response.statusCode();
        // 5xx: the service or a proxy is restarting. Anything else stays as it is.
        if (status >= 400 && status < 500) throw new IllegalStateException("refused: " + status);
        if (status != 200) throw new IOException(String.valueOf(status));
        String frameId = null;
        var data = new ArrayList<String>();
        for (String line : (Iterable<String>) response.body()::iterator) {
          if (line.startsWith("id:")) frameId = line.substring(3).strip();
          else if (line.startsWith("data:")) data.add(line.substring(5).strip());
          else if (line.isEmpty() && !data.isEmpty()) {
            if (frameId != null) cursor = Long.parseLong(frameId);
            // null: of a type that came with a later version.
            SessionEvent event = json.readValue(String.join("\n", data), SessionEvent.class);
            if (event instanceof OutputEvent out && out.getStream() == StreamName.STDOUT) output.append(out.getData());
            else if (event instanceof ExitEvent exit) return new Followed(output.toString(), exit.getCode(), cursor);
            else if (event instanceof ErrorEvent error) throw new IllegalStateException(error.getMessage());
            else if (event instanceof TerminatedEvent end) throw new IllegalStateException(end.getMessage());
            frameId = null;
            data.clear();
          }
        }
      } catch (IOException | UncheckedIOException cutOff) {
        // Resumes.
      }
      Thread.sleep(250);
    }
  }
}

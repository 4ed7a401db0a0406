import com.example.agentsessions.ApiClient;
import com.example.agentsessions.ApiException;
import com.example.agentsessions.api.AgentsApi;
import com.example.agentsessions.api.EnvironmentsApi;
import com.example.agentsessions.api.FilesApi;
import com.example.agentsessions.api.SessionsApi;
import com.example.agentsessions.model.*;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipInputStream;

/** A tour of the Java client that openapi-generator generates; see docs/sdks.md. Prints its results as JSON. */
public final class Tour {
  private static final String BASE_URL = System.getenv().getOrDefault("BASE_URL", "http://127.0.0.1:8080");
  private static final String TOKEN = System.getenv("ACCESS_TOKEN");
  private static final String REPOSITORY_URL =
      System.getenv().getOrDefault("REPOSITORY_URL", "https://github.com/octocat/Hello-World.git");

  private final ApiClient client = withFiles(new ApiClient());
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
        new CreateEnvironmentRequest().name("Tour").envVars(Map.of("GREETING", "hello")).networking(open),
        null);
    if (!(environment.getNetworking() instanceof UnrestrictedNetworking)) throw new AssertionError();
    var agent = agents.createAgent(shell().name("Tour").environmentId(environment.getId()), null);

    var missing = refusal(() -> agents.createAgent(shell(), null));
    var mismatch = refusal(() -> agents.createAgent(shell().name("Tour").model("gpt-5"), null));
    var conflict = refusal(
        () -> agents.updateAgent(agent.getId(), new UpdateAgentRequest().version(7).name("New")));

    var sleep = new CreateSessionRequest().agentId(agent.getId()).prompt("sleep 600");
    var another = new CreateSessionRequest().agentId(agent.getId()).prompt("exit 0");
    var busy = sessions.createSession(sleep, null);
    var limit = refusal(() -> sessions.createSession(another, null));
    sessions.terminateSession(busy.getId());
    var ended = refusal(() -> sessions.terminateSession(busy.getId()));

    var request = new CreateSessionRequest().agentId(agent.getId())
        .prompt("for i in $(seq 20); do echo \"$GREETING $i\"; sleep 0.05; done")
        .resources(List.of(new ResourceInput().type(ResourceInput.TypeEnum.GIT_REPOSITORY)
            .url(REPOSITORY_URL).mountPath("app")));
    // Makes it safe to retry the request after a lost response.
    var key = "tour-" + agent.getId();
    var session = sessions.createSession(request, key);
    var repeated = sessions.createSession(request, key);

    var first = follow(session.getId(), 0);
    var change = "echo again; printf '\\ncaf\\351\\n' >>app/README";
    sessions.promptSession(session.getId(), new PromptSessionRequest().prompt(change), null);
    var second = follow(session.getId(), first.last());
    var turns = sessions.listSessionTurns(session.getId(), null, null).getData();

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
    found.put("files", useFiles(session.getId()));
    System.out.print(json.writeValueAsString(found));
  }

  /** Uploads bytes of every value, and reads them in all ways. The session has changed its repository. */
  private Map<String, Object> useFiles(UUID id) throws Exception {
    var files = new FilesApi(client);
    var path = "data/all bytes.bin";
    var bytes = new byte[4096];
    for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) (i * 7);
    var source = File.createTempFile("tour", null);
    Files.write(source.toPath(), bytes);
    var written = files.writeSessionFile(id, path, source, "0600");
    source.delete();
    var listed = files.listSessionFiles(id, null, null, "data").getData();
    var whole = bytesOf(files.readSessionFile(id, path, null, null, null));
    var part = files.readSessionFileWithHttpInfo(id, path, null, null, "bytes=100-299");
    var archive = new ZipInputStream(new ByteArrayInputStream(bytesOf(files.archiveSessionFiles(id, "zip", "data"))));
    archive.getNextEntry();
    var changes = files.listSessionChanges(id, null).getData();
    var patch = new String(bytesOf(files.readSessionPatch(id, null, null)), StandardCharsets.ISO_8859_1);
    files.deleteSessionFile(id, path);
    var gone = refusal(() -> files.readSessionFile(id, path, null, null, null));

    var found = new LinkedHashMap<String, Object>();
    found.put("written", List.of(written.getPath(), written.getSize(), written.getMode()));
    found.put("listed", listed.stream().map(file -> List.of(file.getPath(), file.getType(), file.getSize())).toList());
    found.put("whole", Arrays.equals(whole, bytes));
    var isPart = Arrays.equals(bytesOf(part.getData()), Arrays.copyOfRange(bytes, 100, 300));
    found.put("part", List.of(part.getStatusCode(), isPart));
    found.put("archived", Arrays.equals(archive.readAllBytes(), bytes));
    found.put("changes", changes.stream().map(repository -> Stream.concat(
        Stream.of(repository.getMountPath()),
        repository.getFiles().stream().map(file -> List.of(file.getPath(), file.getStatus()))).toList()).toList());
    found.put("patched", patch.contains("+caf\u00e9\n"));
    found.put("gone", List.of(gone.getCode(), reasonOf(gone)));
    return found;
  }

  private static byte[] bytesOf(File downloaded) throws IOException {
    try {
      return Files.readAllBytes(downloaded.toPath());
    } finally {
      downloaded.delete();
    }
  }

  /** The generated client takes every body for JSON. This one passes the bytes of files as they are. */
  private static ApiClient withFiles(ApiClient client) {
    return client.setObjectMapper(new FileMapper(client.getObjectMapper()));
  }

  private static final class FileMapper extends ObjectMapper {
    FileMapper(ObjectMapper base) {
      super(base);
    }

    @Override
    public ObjectMapper copy() {
      return new FileMapper(this);
    }

    @Override
    public byte[] writeValueAsBytes(Object value) throws JsonProcessingException {
      if (!(value instanceof File file)) return super.writeValueAsBytes(value);
      try {
        return Files.readAllBytes(file.toPath());
      } catch (IOException unreadable) {
        throw new UncheckedIOException(unreadable);
      }
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T readValue(InputStream body, TypeReference<T> type) throws IOException {
      if (type.getType() != File.class) return super.readValue(body, type);
      var file = File.createTempFile("download", null);
      try (body; var content = Files.newOutputStream(file.toPath())) {
        body.transferTo(content);
      }
      return (T) file;
    }
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

  /** Reads both forms of a 422: a list of invalid fields, or a sentence. */
  private Object reasonOf(ApiException refused) throws IOException {
    JsonNode detail = json.readTree(refused.getResponseBody()).get("detail");
    if (detail.isTextual()) return detail.asText();
    var items = json.readValue(refused.getResponseBody(), ValidationFailure.class).getDetail();
    return items.stream()
        .map(item -> item.getLoc().stream().map(String::valueOf).collect(Collectors.joining(".")) + " " + item.getType())
        .toList();
  }

  /** Reads up to the end of the latest turn. The generated streamSession() would parse the stream as one JSON text. */
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
        // 5xx: the service or a proxy is restarting. Other errors are permanent.
        if (status >= 400 && status < 500) throw new IllegalStateException("refused: " + status);
        if (status != 200) throw new IOException(String.valueOf(status));
        String frameId = null;
        var data = new ArrayList<String>();
        for (String line : (Iterable<String>) response.body()::iterator) {
          if (line.startsWith("id:")) frameId = line.substring(3).strip();
          else if (line.startsWith("data:")) data.add(line.substring(5).strip());
          else if (line.isEmpty() && !data.isEmpty()) {
            if (frameId != null) cursor = Long.parseLong(frameId);
            // null: an event type of a later version.
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
        // Reconnects and resumes.
      }
      Thread.sleep(250);
    }
  }
}

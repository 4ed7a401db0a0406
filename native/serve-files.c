/*
 * Serves one access to files over standard input and output, with the agent's rights, in the frames of
 * src/supervisor/protocol/frames.ts. After its `hello` it reads one `call`, whose payload is NUL-terminated fields:
 *
 *   home, workspace, "list",   path, after, limit    sends entries; a path that is no folder has one
 *   home, workspace, "open",   path                  sends the entry, reads an `input` with the fields offset and length,
 *                                                    and sends these bytes as `content`; ends early if there are fewer
 *   home, workspace, "write",  path, mode, room      reads `input` until `inputEnd`, and sends the entry of the new file
 *   home, workspace, "remove", path                  removes a file, a link or a folder with everything in it
 *   home, workspace, "script", path, limit           reads an `input` with a script, runs it in the folder for at most so
 *                                                    many milliseconds, and sends its output and its exit code
 *   home, workspace, "tree",   path                  sends all entries below a folder, each file with its bytes
 *
 * It never waits for another process: pipes, devices and files with a lease are refused. If its input ends early, it ends
 * without a trace.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confine.h"
#include "file-frames.h"
#include "files.h"

/* How many bytes of input are read at once. */
#define INPUT_BYTES (256 * 1024)

static void find(const struct roots *roots, const char *path, int flags, struct place *place) {
  if (resolve(roots, path, flags, place) < 0) refuse_errno(errno, "finding the file");
}

static void serve_list(const struct roots *roots, const char **fields) {
  struct place place;
  find(roots, fields[3], 0, &place);
  struct stat found;
  if (*place.name == '\0') list_folder(place.folder, fields[4], atoi(fields[5]));
  else if (fstatat(place.folder, place.name, &found, AT_SYMLINK_NOFOLLOW) < 0) refuse_errno(errno, "finding the file");
  else send_entry("", &found, NULL);
}

static void serve_open(const struct roots *roots, const char **fields) {
  struct place place;
  struct stat found;
  find(roots, fields[3], 0, &place);
  if (*place.name == '\0') {
    if (fstat(place.folder, &found) < 0) refuse_errno(errno, "finding the file");
    send_entry("", &found, NULL);
    return;
  }
  if (fstatat(place.folder, place.name, &found, AT_SYMLINK_NOFOLLOW) < 0) refuse_errno(errno, "finding the file");
  int file = -1;
  if (S_ISREG(found.st_mode)) {
    file = openat(place.folder, place.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0 || fstat(file, &found) < 0) refuse_errno(errno, "opening the file");
  }
  send_entry("", &found, NULL);
  if (!S_ISREG(found.st_mode) || read_frame() != INPUT) return;
  const char *range[MAX_FIELDS];
  split(range);
  long long offset = strtoll(range[0], NULL, 10), length = strtoll(range[1], NULL, 10);
  if (lseek(file, offset, SEEK_SET) < 0) refuse_errno(errno, "reading the file");
  /* The promised bytes are missing, which the caller sees by the end of the connection. */
  if (send_content(file, length, 0) < length) leave(1);
}

/* Gives a file without a name its name. Replaces what has the name, except a folder. */
static void publish(int file, const struct place *place, int has_draft) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  if (!has_draft) {
    if (linkat(AT_FDCWD, path, place->folder, place->name, AT_SYMLINK_FOLLOW) == 0) return;
    if (errno != EEXIST) refuse_errno(errno, "writing the file");
    if (linkat(AT_FDCWD, path, place->folder, draft_name, AT_SYMLINK_FOLLOW) < 0)
      refuse_errno(errno, "writing the file");
    draft_folder = place->folder;
  }
  if (renameat(place->folder, draft_name, place->folder, place->name) < 0) refuse_errno(errno, "writing the file");
  draft_folder = -1;
}

/* Writes so many bytes of the input to a file. */
static void receive_bytes(int file, size_t length) {
  static unsigned char input[INPUT_BYTES];
  while (length > 0) {
    ssize_t got = read(0, input, length < sizeof input ? length : sizeof input);
    if (got == 0 || (got < 0 && errno != EINTR)) leave(0);
    for (ssize_t done = 0; done < got;) {
      ssize_t wrote = write(file, input + done, (size_t)(got - done));
      if (wrote < 0 && errno != EINTR) refuse_errno(errno, "writing the file");
      if (wrote > 0) done += wrote;
    }
    if (got > 0) length -= (size_t)got;
  }
}

static void serve_write(const struct roots *roots, const char **fields) {
  struct place place;
  struct stat found;
  find(roots, fields[3], KEEP_LINK | MAKE_PARENTS, &place);
  if (*place.name == '\0') refuse("conflict", "the path is a directory");
  mode_t mode = *fields[4] == '\0' ? 0644 : (mode_t)strtol(fields[4], NULL, 8) & 0777;
  long long room = strtoll(fields[5], NULL, 10);
  if (fstatat(place.folder, place.name, &found, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISDIR(found.st_mode)) refuse("conflict", "the path is a directory");
    if (S_ISREG(found.st_mode) && *fields[4] == '\0') mode = found.st_mode & 0777;
  }
  uint64_t random;
  if (getrandom(&random, sizeof random, 0) < 0) refuse_errno(errno, "choosing a name");
  snprintf(draft_name, sizeof draft_name, ".writing-%016" PRIx64, random);
  /* Without a name, the file disappears with this process, even if that is killed. Some file systems cannot do that. */
  int has_draft = 0;
  int file = openat(place.folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)) {
    file = openat(place.folder, draft_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    has_draft = 1;
    if (file >= 0) draft_folder = place.folder;
  }
  if (file < 0) refuse_errno(errno, "making the file");
  for (int type; (type = read_header()) != INPUT_END;) {
    if (type != INPUT) leave(1);
    if ((room -= (long long)payload_length) < 0) refuse("full", "the disk limit is reached");
    receive_bytes(file, payload_length);
  }
  if (fchmod(file, mode) < 0 || fstat(file, &found) < 0) refuse_errno(errno, "writing the file");
  publish(file, &place, has_draft);
  send_entry("", &found, NULL);
}

static void serve_remove(const struct roots *roots, const char **fields) {
  struct place place;
  find(roots, fields[3], KEEP_LINK, &place);
  if (*place.name == '\0') refuse("conflict", "the home and the workspace cannot be removed");
  if (remove_tree(place.folder, place.name) < 0) refuse_errno(errno, "removing the file");
}

static void serve_tree(const struct roots *roots, const char **fields) {
  struct place place;
  find(roots, fields[3], 0, &place);
  if (*place.name != '\0') refuse("conflict", "the path is no directory");
  send_tree(place.folder);
}

static void serve_script(const struct roots *roots, const char **fields) {
  struct place place;
  find(roots, fields[3], 0, &place);
  if (*place.name != '\0') refuse("missing", "the path is no directory");
  long long limit = strtoll(fields[4], NULL, 10);
  if (read_frame() != INPUT) leave(1);
  char *script = strdup((const char *)payload);
  if (script == NULL) refuse("failed", "not enough memory");
  run_script(place.folder, script, roots->home, limit);
}

int serve_files(void) {
  static const struct {
    const char *name;
    void (*serve)(const struct roots *, const char **);
  } calls[] = {{"list", serve_list},     {"open", serve_open}, {"write", serve_write},
               {"remove", serve_remove}, {"tree", serve_tree}, {"script", serve_script}};
  const char hello[] = "{\"version\":1}";
  /* Other processes of the agent's user may not read or change this one. */
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  umask(0);
  for (int fd = 0; fd <= 1; fd++) {
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
  }
  send_frame(HELLO, hello, sizeof hello - 1);
  if (read_frame() != CALL) return 1;
  char *copy = malloc(payload_length + 1);
  if (copy == NULL) return 1;
  const char *fields[MAX_FIELDS];
  split(fields);
  /* The payload is reused for the input. */
  memcpy(copy, payload, payload_length + 1);
  for (int i = 0; i < MAX_FIELDS; i++)
    if (*fields[i] != '\0') fields[i] = copy + (fields[i] - (const char *)payload);
  struct roots roots = {fields[0], fields[1]};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    if (strcmp(calls[i].name, fields[2]) != 0) continue;
    calls[i].serve(&roots, fields);
    send_frame(END, "", 0);
    finish();
  }
  refuse("failed", "there is no such call");
}

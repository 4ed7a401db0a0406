/* Reads the command line of `confine`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "confine.h"

struct options options = {.user = -1, .environment = -1, .seccomp = -1, .announce = -1};

static long long number(const char *text, const char *what) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < 0) fail(0, "%s is not a number: %s", what, text);
  return value;
}

static int descriptor(const char *text) {
  long long value = number(text, "a descriptor");
  if (value > 1023 || fcntl((int)value, F_GETFD) < 0) fail(0, "descriptor %s is not open", text);
  return (int)value;
}

/* To the kernel -1 means "no change", and larger numbers lose their upper half. Both would leave the user unchanged. */
static long user_number(const char *text) {
  long long value = number(text, "a user");
  if (value >= (uid_t)-1) fail(0, "there is no user %s", text);
  return (long)value;
}

static void add_limit(const char *text) {
  static const struct {
    const char *name;
    int resource;
  } known[] = {{"core", RLIMIT_CORE},     {"data", RLIMIT_DATA},   {"fsize", RLIMIT_FSIZE},
               {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC}};
  const char *equals = strchr(text, '=');
  for (size_t i = 0; equals != NULL && i < sizeof known / sizeof *known; i++) {
    size_t length = strlen(known[i].name);
    if ((size_t)(equals - text) != length || strncmp(text, known[i].name, length) != 0) continue;
    if (options.limit_count == MAX_REPEATED) fail(0, "too many limits");
    options.limits[options.limit_count++] =
        (struct limit){known[i].resource, (rlim_t)number(equals + 1, known[i].name)};
    return;
  }
  fail(0, "unknown limit %s", text);
}

static void add(const char **list, int *count, const char *value) {
  if (*count == MAX_REPEATED) fail(0, "too many values");
  list[(*count)++] = value;
}

static int is_flag(const char *name) {
  const struct {
    const char *name;
    int *flag;
  } flags[] = {{"--close", &options.close_others},
               {"--subreaper", &options.subreaper},
               {"--reap", &options.reap},
               {"--drop-capabilities", &options.drop_capabilities},
               {"--no-new-privileges", &options.no_new_privileges},
               {"--die-with-parent", &options.die_with_parent},
               {"--clear-environment", &options.clear_environment},
               {"--idle", &options.idle},
               {"--seal-input", &options.seal_input},
               {"--look-up", &options.look_up},
               {"--files", &options.files},
               {"--detach", &options.detach},
               {"--container-root", &options.container_root}};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    if (strcmp(name, flags[i].name) != 0) continue;
    *flags[i].flag = 1;
    return 1;
  }
  return 0;
}

static void set_value(const char *name, const char *value) {
  if (strcmp(name, "--cgroup") == 0) add(options.cgroups, &options.cgroup_count, value);
  else if (strcmp(name, "--fifo") == 0) add(options.fifos, &options.fifo_count, value);
  else if (strcmp(name, "--bind") == 0) add(options.binds, &options.bind_count, value);
  else if (strcmp(name, "--hide") == 0) add(options.hidden, &options.hide_count, value);
  else if (strcmp(name, "--rlimit") == 0) add_limit(value);
  else if (strcmp(name, "--oom-score-adj") == 0) options.oom_score_adj = value;
  else if (strcmp(name, "--user") == 0) options.user = user_number(value);
  else if (strcmp(name, "--chdir") == 0) options.directory = value;
  else if (strcmp(name, "--write-files") == 0) options.write_files = value;
  else if (strcmp(name, "--environment") == 0) options.environment = descriptor(value);
  else if (strcmp(name, "--seccomp") == 0) options.seccomp = descriptor(value);
  else if (strcmp(name, "--announce") == 0) options.announce = descriptor(value);
  else fail(0, "unknown option %s", name);
}

char **parse(int count, char **arguments) {
  for (int i = 1; i < count; i++) {
    if (strcmp(arguments[i], "--") == 0) return arguments + i + 1;
    if (is_flag(arguments[i])) continue;
    if (i + 1 == count) fail(0, "%s needs a value", arguments[i]);
    set_value(arguments[i], arguments[i + 1]);
    i++;
  }
  return arguments + count;
}

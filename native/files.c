/*
 * Writes files and looks up programs in a sandbox between launches, with the agent's rights. It runs no other program,
 * because the agent may have replaced the shell and every program on the PATH.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confine.h"

/* Returns the next NUL-terminated field of standard input, or NULL after the last file. */
static char *field(void) {
  char *text = NULL;
  size_t room = 0;
  ssize_t length = getdelim(&text, &room, '\0', stdin);
  if (length <= 0) return NULL;
  if (text[length - 1] != '\0') fail(0, "the files end too early");
  return text;
}

static long long number_field(int base) {
  char *text = field(), *end;
  long long value = text == NULL ? -1 : strtoll(text, &end, base);
  if (value < 0 || end == text || *end != '\0') fail(0, "the list of files is malformed");
  free(text);
  return value;
}

/* Makes the parent folders of a file: 0700 at and below the home's hidden ones, 0755 elsewhere. */
static void make_parents(char *path, const char *home) {
  size_t length = strlen(home);
  for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    int is_hidden = strncmp(path, home, length) == 0 && strncmp(path + length, "/.", 2) == 0;
    struct stat found;
    if ((stat(path, &found) < 0 || !S_ISDIR(found.st_mode)) && mkdir(path, is_hidden ? 0700 : 0755) < 0)
      fail(errno, "making %s", path);
    *slash = '/';
  }
}

/* Writes a draft and renames it, so that readers see the complete file or none. Replaces a link of the same name. */
static void write_file_from_input(char *path, mode_t mode, long long size) {
  unsigned long long random;
  char draft[PATH_MAX + 32];
  check((int)getrandom(&random, sizeof random, 0), "choosing a name");
  snprintf(draft, sizeof draft, "%.*s/.writing-%016llx", (int)(strrchr(path, '/') - path), path, random);
  int file = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) fail(errno, "making a file in the folder of %s", path);
  char piece[64 * 1024];
  int error = 0;
  while (size > 0 && error == 0) {
    size_t got = fread(piece, 1, size < (long long)sizeof piece ? (size_t)size : sizeof piece, stdin);
    if (got == 0) error = EPIPE;
    for (size_t done = 0; done < got && error == 0;) {
      ssize_t wrote = write(file, piece + done, got - done);
      if (wrote < 0) error = errno;
      else done += (size_t)wrote;
    }
    size -= (long long)got;
  }
  if (error == 0 && (fchmod(file, mode) < 0 || close(file) < 0 || rename(draft, path) < 0)) error = errno;
  if (error == 0) return;
  unlink(draft);
  fail(error, "writing %s", path);
}

/*
 * For each file, standard input holds its path, its mode (octal) and its size, each NUL-terminated, and then its bytes.
 * Links in parent folders are followed: with the agent's rights they lead only to places that the agent can write
 * anyway.
 */
int write_files(const char *home) {
  umask(0);
  for (char *path; (path = field()) != NULL; free(path)) {
    if (*path != '/' || strlen(path) >= PATH_MAX) fail(ENAMETOOLONG, "writing a file");
    mode_t mode = (mode_t)number_field(8);
    long long size = number_field(10);
    make_parents(path, home);
    write_file_from_input(path, mode & 0777, size);
  }
  return 0;
}

static int is_on_path(const char *name) {
  const char *folders = getenv("PATH");
  while (folders != NULL && *folders != '\0') {
    int length = (int)strcspn(folders, ":");
    char path[PATH_MAX];
    struct stat found;
    int needed = snprintf(path, sizeof path, "%.*s/%s", length, folders, name);
    if (needed < (int)sizeof path && stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0)
      return 1;
    folders += length + (folders[length] == ':');
  }
  return 0;
}

/* Returns 0 if all names are programs on the PATH, else 1. */
int look_up(char **names) {
  for (; *names != NULL; names++)
    if (!is_on_path(*names)) return 1;
  return 0;
}

/*
 * Finds the files that clients name, for the agent's user, without leaving the home and the workspace: every component
 * is opened relative to its parent's descriptor and never as a link, and links are followed by hand. A component that
 * is swapped for a link meanwhile is therefore never followed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

#define MAX_LINKS 40
/* Each level holds a descriptor. */
#define MAX_LEVELS 100

static int levels[MAX_LEVELS];
static int depth;

static void pop_to(int kept) {
  while (depth > kept) close(levels[--depth]);
}

static int push(int fd) {
  if (depth == MAX_LEVELS) {
    close(fd);
    errno = ENAMETOOLONG;
    return -1;
  }
  levels[depth++] = fd;
  return 0;
}

/* Starts at the folder that an absolute path lies in. Returns the rest of the path, or NULL if it is in none of them. */
static const char *enter_root(const struct roots *roots, const char *path) {
  const char *folders[] = {roots->home, roots->workspace};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    size_t length = strlen(folders[i]);
    if (strncmp(path, folders[i], length) != 0 || (path[length] != '\0' && path[length] != '/')) continue;
    pop_to(0);
    int fd = open(folders[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 || push(fd) < 0 ? NULL : path + length;
  }
  errno = ENOENT;
  return NULL;
}

/* Replaces `todo` by a link's target and the rest. Returns the path to go on with, or NULL. */
static const char *follow(const struct roots *roots, int link, const char *rest, char *todo, size_t room) {
  char target[PATH_MAX], joined[3 * PATH_MAX];
  ssize_t length = readlinkat(link, "", target, sizeof target);
  if (length < 0) return NULL;
  if ((size_t)length + 1 + strlen(rest) >= room || length == (ssize_t)sizeof target) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  memcpy(joined, target, (size_t)length);
  joined[length] = '/';
  strcpy(joined + length + 1, rest);
  strcpy(todo, joined);
  return *todo == '/' ? enter_root(roots, todo) : todo;
}

int resolve(const struct roots *roots, const char *path, int flags, struct place *place) {
  char todo[2 * PATH_MAX];
  int links = 0;
  if (strlen(path) >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const char *at = enter_root(roots, strcpy(todo, path));
  while (at != NULL) {
    at += strspn(at, "/");
    size_t length = strcspn(at, "/");
    const char *rest = at + length + strspn(at + length, "/");
    if (length == 0) {
      *place = (struct place){.folder = levels[depth - 1], .name = ""};
      return 0;
    }
    if (length > NAME_MAX) {
      errno = ENAMETOOLONG;
      return -1;
    }
    char name[NAME_MAX + 1];
    memcpy(name, at, length);
    name[length] = '\0';
    at = rest;
    if (strcmp(name, ".") == 0) continue;
    if (strcmp(name, "..") == 0) {
      if (depth == 1) {
        errno = ENOENT;
        return -1;
      }
      pop_to(depth - 1);
      continue;
    }
    int parent = levels[depth - 1];
    *place = (struct place){.folder = parent};
    strcpy(place->name, name);
    if (*rest == '\0' && (flags & KEEP_LINK)) return 0;
    int fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && *rest != '\0' && (flags & MAKE_PARENTS)) {
      if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST) return -1;
      fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0) return -1;
    struct stat found;
    if (fstat(fd, &found) < 0) return -1;
    if (S_ISLNK(found.st_mode)) {
      if (++links > MAX_LINKS) {
        errno = ELOOP;
        return -1;
      }
      char remaining[2 * PATH_MAX];
      strcpy(remaining, rest);
      at = follow(roots, fd, remaining, todo, sizeof todo);
      int error = errno;
      close(fd);
      errno = error;
    } else if (S_ISDIR(found.st_mode)) {
      if (push(fd) < 0) return -1;
    } else {
      close(fd);
      if (*rest == '\0') return 0;
      errno = ENOTDIR;
      return -1;
    }
  }
  return -1;
}

/* Lists folders, and sends and removes trees, with the agent's rights and without following links. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confine.h"
#include "files.h"

/* Each level of a tree holds a descriptor. */
#define MAX_TREE_LEVELS 100
#define MAX_REMOVED_LEVELS 64
/* How many names of a folder are sorted at once. Twice as many are held, in about 10 MiB if they are of usual length. */
#define MAX_NAMES 50000
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* The length of the valid UTF-8 sequence at the beginning, or 0. */
static size_t sequence(const unsigned char *at) {
  if (at[0] < 0x80) return 1;
  size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
  if (at[0] < 0xc2 || at[0] > 0xf4) return 0;
  for (size_t i = 1; i < length; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  if (at[0] == 0xe0 && at[1] < 0xa0) return 0; /* longer than needed */
  if (at[0] == 0xed && at[1] > 0x9f) return 0; /* surrogates */
  if (at[0] == 0xf0 && at[1] < 0x90) return 0;
  if (at[0] == 0xf4 && at[1] > 0x8f) return 0;
  return length;
}

void show_name(const char *name, char *shown) {
  while (*name != '\0') {
    size_t length = sequence((const unsigned char *)name);
    memcpy(shown, length == 0 ? "\xef\xbf\xbd" : name, length == 0 ? 3 : length);
    shown += length == 0 ? 3 : length;
    name += length == 0 ? 1 : length;
  }
  *shown = '\0';
}

static int is_dots(const char *name) {
  return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static void send_found(int folder, const char *name, const char *shown, const struct stat *found) {
  char target[PATH_MAX] = "", shown_target[3 * PATH_MAX];
  ssize_t length = S_ISLNK(found->st_mode) ? readlinkat(folder, name, target, sizeof target - 1) : -1;
  if (length >= 0) target[length] = '\0';
  show_name(target, shown_target);
  send_entry(shown, found, S_ISLNK(found->st_mode) ? shown_target : NULL);
}

struct listed {
  char *shown;
  char *name;
};

static int by_shown(const void *one, const void *other) {
  return strcmp(((const struct listed *)one)->shown, ((const struct listed *)other)->shown);
}

/*
 * Sorts a list, and keeps its first names up to a limit. Of names that are shown in the same way it keeps one. Returns
 * how many are left.
 */
static int keep_first(struct listed *list, int count, int limit) {
  int kept = 0;
  qsort(list, (size_t)count, sizeof *list, by_shown);
  for (int i = 0; i < count; i++) {
    if (kept < limit && (kept == 0 || strcmp(list[kept - 1].shown, list[i].shown) != 0)) list[kept++] = list[i];
    else free(list[i].shown);
  }
  return kept;
}

/* Collects the first names after another one, up to a limit. Holds no more than twice as many, whatever the folder has. */
static int collect(DIR *entries, const char *after, struct listed *list, int limit) {
  int count = 0;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    char shown[3 * NAME_MAX + 1];
    if (is_dots(entry->d_name)) continue;
    show_name(entry->d_name, shown);
    if (*after != '\0' && strcmp(shown, after) <= 0) continue;
    if (count == 2 * limit) count = keep_first(list, count, limit);
    size_t length = strlen(shown) + 1, own = strlen(entry->d_name) + 1;
    /* Both in one piece of memory. */
    char *texts = malloc(length + own);
    if (texts == NULL) refuse("failed", "not enough memory");
    memcpy(texts, shown, length);
    memcpy(texts + length, entry->d_name, own);
    list[count++] = (struct listed){texts, texts + length};
  }
  return keep_first(list, count, limit);
}

/*
 * Sends entries in the order of their names as they are shown, so that a page can continue after any name. Reads the
 * folder once for every MAX_NAMES entries, and its caller may stop reading at any entry.
 */
void list_folder(int folder, const char *after, int limit) {
  int most = limit < MAX_NAMES ? limit : MAX_NAMES;
  struct listed *list = calloc(2 * (size_t)most + 1, sizeof *list);
  int fd = openat(folder, ".", FOLDER_FLAGS);
  DIR *entries = fd < 0 ? NULL : fdopendir(fd);
  if (entries == NULL || list == NULL) refuse_errno(errno, "reading the folder");
  static char last[3 * NAME_MAX + 1];
  snprintf(last, sizeof last, "%s", after);
  while (limit > 0) {
    int count = collect(entries, last, list, most);
    for (int i = 0; i < count; i++) {
      struct stat found;
      snprintf(last, sizeof last, "%s", list[i].shown);
      /* It was removed in the meantime. */
      if (limit > 0 && fstatat(dirfd(entries), list[i].name, &found, AT_SYMLINK_NOFOLLOW) == 0) {
        send_found(dirfd(entries), list[i].name, list[i].shown, &found);
        limit--;
      }
      free(list[i].shown);
    }
    if (count < most) break;
    rewinddir(entries);
  }
  closedir(entries);
}

static void send_file(int folder, const char *name, const char *shown) {
  /* Does not wait for the other end of a pipe, or for a lease that another process has on the file. */
  int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  struct stat found;
  if (file < 0) return;
  if (fstat(file, &found) == 0 && S_ISREG(found.st_mode)) {
    send_entry(shown, &found, NULL);
    send_content(file, found.st_size, 1);
  }
  close(file);
}

static void send_level(int folder, char *path, size_t length, int level) {
  DIR *entries = fdopendir(folder);
  if (entries == NULL) refuse_errno(errno, "reading a folder");
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    static char shown[3 * TREE_PATH_BYTES + 1];
    struct stat found;
    const char *name = entry->d_name;
    if (is_dots(name) || fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) < 0) continue;
    size_t own = strlen(name);
    if (length + own + 2 > TREE_PATH_BYTES || level == MAX_TREE_LEVELS)
      refuse("conflict", "the folders are nested too deeply");
    memcpy(path + length, name, own + 1);
    show_name(path, shown);
    if (S_ISREG(found.st_mode)) send_file(folder, name, shown);
    else if (S_ISLNK(found.st_mode)) send_found(folder, name, shown, &found);
    else if (S_ISDIR(found.st_mode)) {
      int below = openat(folder, name, FOLDER_FLAGS);
      if (below < 0 && errno != EACCES && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        refuse_errno(errno, "reading a folder");
      if (below < 0) continue;
      send_entry(shown, &found, NULL);
      path[length + own] = '/';
      send_level(below, path, length + own + 1, level + 1);
    }
  }
  closedir(entries);
}

void send_tree(int folder) {
  static char path[TREE_PATH_BYTES];
  int fd = openat(folder, ".", FOLDER_FLAGS);
  if (fd < 0) refuse_errno(errno, "reading the folder");
  send_level(fd, path, 0, 0);
}

/* Empties a folder. Moves what is nested too deeply to `top`, whose own entries are removed until there are none. */
static int empty(int folder, int top, int level) {
  int copy = dup(folder);
  DIR *entries = copy < 0 ? NULL : fdopendir(copy);
  if (entries == NULL) return -1;
  int result = 0;
  for (struct dirent *entry; result == 0 && (entry = readdir(entries)) != NULL;) {
    const char *name = entry->d_name;
    if (is_dots(name)) continue;
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) result = -1;
    else if (level == MAX_REMOVED_LEVELS) {
      char moved[64];
      uint64_t random;
      if (getrandom(&random, sizeof random, 0) < 0) result = -1;
      snprintf(moved, sizeof moved, ".removing-%016llx", (unsigned long long)random);
      if (result == 0) result = renameat(folder, name, top, moved);
    } else {
      int below = openat(folder, name, FOLDER_FLAGS);
      if (below < 0 && errno == EACCES && fchmodat(folder, name, 0700, 0) == 0) below = openat(folder, name, FOLDER_FLAGS);
      if (below < 0) result = -1;
      else {
        /* A folder that cannot be written cannot be emptied. */
        (void)!fchmod(below, 0700);
        result = empty(below, top, level + 1);
        close(below);
        /* What was added meanwhile is removed by the next round of `remove_tree`. */
        if (result == 0 && unlinkat(folder, name, AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY)
          result = -1;
      }
    }
  }
  int error = errno;
  closedir(entries);
  errno = error;
  return result;
}

int remove_tree(int folder, const char *name) {
  struct stat found;
  if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) < 0) return -1;
  if (!S_ISDIR(found.st_mode)) return unlinkat(folder, name, 0);
  int top = openat(folder, name, FOLDER_FLAGS);
  if (top < 0 && errno == EACCES && fchmodat(folder, name, 0700, 0) == 0) top = openat(folder, name, FOLDER_FLAGS);
  if (top < 0) return -1;
  (void)!fchmod(top, 0700);
  for (;;) {
    lseek(top, 0, SEEK_SET);
    if (empty(top, top, 0) < 0) return -1;
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0) return 0;
    if (errno != ENOTEMPTY) return errno == ENOENT ? 0 : -1;
  }
}

/* Mounts that only the confined program sees. Its descendants cannot undo them without CAP_SYS_ADMIN. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confine.h"

static void bind_folder(const char *pair) {
  char source[4096];
  const char *equals = strchr(pair, '=');
  if (equals == NULL || (size_t)(equals - pair) >= sizeof source) fail(0, "not SOURCE=TARGET: %s", pair);
  memcpy(source, pair, (size_t)(equals - pair));
  source[equals - pair] = '\0';
  if (mount(source, equals + 1, NULL, MS_BIND, NULL) < 0) fail(errno, "binding %s", pair);
  /* Nothing that a tenant puts there works as a device or a setuid program. */
  if (mount(NULL, equals + 1, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, NULL) < 0)
    fail(errno, "protecting %s", equals + 1);
}

static void hide_folder(const char *path) {
  if (mount("none", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=000") < 0)
    fail(errno, "hiding %s", path);
}

/* Shows one entry of a folder that was covered. */
static void show_entry(int before, const char *folder, const char *name) {
  char source[320], target[4096], link[4096];
  struct stat status;
  snprintf(source, sizeof source, "/proc/self/fd/%d/%s", before, name);
  if (snprintf(target, sizeof target, "%s/%s", folder, name) >= (int)sizeof target) fail(0, "too long: %s", name);
  if (lstat(source, &status) < 0) fail(errno, "examining %s", target);
  if (S_ISLNK(status.st_mode)) {
    ssize_t length = readlink(source, link, sizeof link - 1);
    check((int)length, "reading a link");
    link[length] = '\0';
    check(symlink(link, target), "making a link");
    return;
  }
  if (S_ISDIR(status.st_mode)) check(mkdir(target, 0755), "making a folder");
  else check(mknod(target, S_IFREG | 0644, 0), "making a file");
  if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0) fail(errno, "showing %s", target);
}

/*
 * Covers the folder of a file by one that has everything else. A mount over the file itself would go away when somebody
 * replaces the file, as a server does with its socket when it starts again.
 */
static void hide_file(const char *path) {
  char folder[4096];
  const char *name = strrchr(path, '/');
  if (name == NULL || name == path || (size_t)(name - path) >= sizeof folder) fail(0, "cannot be hidden: %s", path);
  memcpy(folder, path, (size_t)(name - path));
  folder[name++ - path] = '\0';
  int before = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (before < 0 && errno == ENOENT) return;
  check(before, folder);
  DIR *entries = fdopendir(dup(before));
  if (entries == NULL) fail(errno, "reading %s", folder);
  if (mount("none", folder, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755") < 0) fail(errno, "hiding %s", path);
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || strcmp(entry->d_name, name) == 0) continue;
    show_entry(before, folder, entry->d_name);
  }
  closedir(entries);
  close(before);
  if (mount(NULL, folder, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
    fail(errno, "protecting %s", folder);
}

static void hide(const char *path) {
  struct stat status;
  int there = lstat(path, &status);
  /* What does not exist may be created later; what cannot be examined may be reachable. */
  if (there < 0 && errno != ENOENT) fail(errno, "examining %s", path);
  if (there == 0 && S_ISDIR(status.st_mode)) hide_folder(path);
  else hide_file(path);
}

void arrange_mounts(void) {
  check(unshare(CLONE_NEWNS), "making mounts of its own");
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) fail(errno, "separating mounts");
  for (int i = 0; i < options.bind_count; i++) bind_folder(options.binds[i]);
  for (int i = 0; i < options.hide_count; i++) hide(options.hidden[i]);
}

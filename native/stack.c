/*
 * Mounts overlays where only one program and its children see them, and becomes that program.
 *
 *   stack [option]... -- program [argument]...
 *
 *   --owner N                        the layers belong to user and group 0 on disk; the overlays show them as N's
 *   --volatile                       nothing waits for the disk: after a crash of the host the files may be damaged
 *   --bind FROM TO                   shows a folder at another path
 *   --work FOLDER                    where overlays keep files on their way, on the file system of their upper folders
 *   --overlay TARGET UPPER N LOWER...
 *                                    mounts an overlay of N read-only layers, the topmost first
 *
 * Mounts are made in the order of the command line, in a mount namespace of their own, so they end with their last
 * process, however it ends. Runs as root. All paths are the service's own: none lies below a folder that a tenant can
 * write to. util-linux cannot map owners before 2.39, hence this program.
 *
 * Several may run at a time for one sandbox. One overlay does not notice what is changed through another one, so a
 * program uses the mounts of one that runs already, if there is any. Their processes are known by their work folders, one
 * each: the kernel empties a work folder when it mounts. Those of dead processes are removed.
 *
 * A step that fails ends this program with 125 and one line on standard error.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_MOUNTED 125
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define MAX_LAYERS 8

/* <sys/mount.h> and <linux/mount.h> contradict each other. */
extern int mount(const char *, const char *, const char *, unsigned long, const void *);
extern int umount2(const char *, int);
#define MNT_DETACH 2

static void fail(const char *what, const char *path) {
  dprintf(2, "the file system of the sandbox cannot be mounted: %s %s: %s\n", what, path, strerror(errno));
  _exit(EXIT_NOT_MOUNTED);
}

static void write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) fail("writing", path);
  close(fd);
}

/* A user namespace in which user and group 0 are the given one. */
static int owner_namespace(long owner) {
  int ready[2], done[2];
  char byte, path[64], map[64];
  if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(done, O_CLOEXEC) < 0) fail("making", "a pipe");
  pid_t child = fork();
  if (child < 0) fail("starting", "a process");
  if (child == 0) {
    close(done[1]);
    if (unshare(CLONE_NEWUSER) < 0 || write(ready[1], "", 1) != 1) _exit(1);
    if (read(done[0], &byte, 1) != 0) _exit(1);
    _exit(0);
  }
  close(ready[1]);
  if (read(ready[0], &byte, 1) != 1) fail("making", "a user namespace");
  snprintf(map, sizeof map, "0 %ld 1", owner);
  snprintf(path, sizeof path, "/proc/%d/uid_map", child);
  write_text(path, map);
  snprintf(path, sizeof path, "/proc/%d/gid_map", child);
  write_text(path, map);
  snprintf(path, sizeof path, "/proc/%d/ns/user", child);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("opening", path);
  close(done[1]);
  close(done[0]);
  close(ready[0]);
  waitpid(child, NULL, 0);
  return fd;
}

/* When a process was started, in ticks since the boot; 0 if there is none. */
static unsigned long long start_of(long pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = 0;
  /* The name may contain anything, also parentheses. The start is the 20th field after it. */
  char *at = strrchr(text, ')');
  for (int field = 0; at != NULL && field < 20; field++) at = strchr(at + 1, ' ');
  return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static int remove_entry(const char *path, const struct stat *stats, int kind, struct FTW *at) {
  (void)stats, (void)kind, (void)at;
  remove(path);
  return 0;
}

/* The mount namespace of a process, if it is still the one that was started then; otherwise -1. */
static int namespace_of(long pid, unsigned long long start) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/ns/mnt", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && start_of(pid) != start) {
    close(fd);
    fd = -1;
  }
  return fd;
}

/*
 * Makes this process's own work folder in `base`, and removes those of dead processes. Returns the mount namespace of a
 * process that is alive, or -1. Holds a lock until the program is executed: its mounts are complete then.
 */
static int make_work(const char *base, char *work, size_t size) {
  int other = -1;
  int lock = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0 || flock(lock, LOCK_EX) < 0) fail("locking", base);
  DIR *folder = opendir(base);
  if (folder == NULL) fail("opening", base);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    long pid;
    unsigned long long start;
    if (sscanf(entry->d_name, "%ld.%llu", &pid, &start) != 2) continue;
    if (start_of(pid) == start && other < 0) other = namespace_of(pid, start);
  }
  /* A process that is alive may use the work folder of a dead one whose mounts it has entered. */
  rewinddir(folder);
  for (struct dirent *entry; other < 0 && (entry = readdir(folder)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    snprintf(work, size, "%s/%s", base, entry->d_name);
    nftw(work, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
  }
  closedir(folder);
  snprintf(work, size, "%s/%d.%llu", base, getpid(), start_of(getpid()));
  if (mkdir(work, 0700) < 0 && errno != EEXIST) fail("making", work);
  return other;
}

/* Is something mounted at the target of each overlay of the command line? */
static int has_overlays(char **arguments) {
  struct statfs stats;
  for (; *arguments != NULL && strcmp(*arguments, "--") != 0; arguments++) {
    if (strcmp(*arguments, "--overlay") != 0) continue;
    if (statfs(arguments[1], &stats) < 0 || stats.f_type != OVERLAYFS_SUPER_MAGIC) return 0;
  }
  return 1;
}

/* Enters another mount namespace if the overlays are mounted there. */
static int join(int other, char **arguments) {
  int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (own < 0) fail("opening", "the mount namespace");
  int joined = setns(other, CLONE_NEWNS) == 0 && has_overlays(arguments);
  if (joined) {
    /* This program's own copy stays when the other one ends. */
    if (unshare(CLONE_NEWNS) < 0) fail("leaving", "the mount namespace");
  } else if (setns(own, CLONE_NEWNS) < 0) {
    fail("entering", "the mount namespace");
  }
  close(own);
  return joined;
}

static void bind_folder(const char *from, const char *to) {
  int tree = syscall(SYS_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | O_CLOEXEC);
  if (tree < 0) fail("opening", from);
  if (syscall(SYS_move_mount, tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0) fail("mounting", to);
  close(tree);
}

/* Shows a layer read-only at a path, with its owner mapped. */
static void show_layer(const char *layer, const char *at, int owner) {
  struct mount_attr attributes = {
      .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
  };
  if (owner >= 0) {
    attributes.attr_set |= MOUNT_ATTR_IDMAP;
    attributes.userns_fd = owner;
  }
  int tree = syscall(SYS_open_tree, AT_FDCWD, layer, OPEN_TREE_CLONE | O_CLOEXEC);
  if (tree < 0) fail("opening", layer);
  if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0)
    fail("mapping the owner of", layer);
  if (syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0) fail("mounting", at);
  close(tree);
}

static void overlay(const char *target, const char *upper, const char *base, int count, char **layers, int owner, int is_volatile) {
  static int made;
  char options[8192], path[1024], work[1024];
  snprintf(work, sizeof work, "%s/%d", base, made++);
  if (mkdir(work, 0700) < 0 && errno != EEXIST) fail("making", work);
  /* An overlay takes layers by path and keeps them, so what is mounted here only for that goes again. */
  if (mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=0700") < 0)
    fail("mounting", target);
  int length = snprintf(options, sizeof options, "upperdir=%s,workdir=%s,%sindex=off,metacopy=off,redirect_dir=off,lowerdir=", upper, work, is_volatile ? "volatile," : "");
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%d", target, i);
    if (mkdir(path, 0700) < 0) fail("making", path);
    show_layer(layers[i], path, owner);
    length += snprintf(options + length, sizeof options - length, "%s%s", i > 0 ? ":" : "", path);
    if (length >= (int)sizeof options) fail("naming", target);
  }
  snprintf(path, sizeof path, "%s/m", target);
  if (mkdir(path, 0700) < 0) fail("making", path);
  if (mount("overlay", path, "overlay", MS_NOSUID | MS_NODEV | MS_NOATIME, options) < 0)
    fail("mounting an overlay at", target);
  int tree = syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | O_CLOEXEC);
  if (tree < 0 || umount2(target, MNT_DETACH) < 0) fail("clearing", target);
  if (syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) < 0) fail("mounting", target);
  close(tree);
}

int main(int count, char **arguments) {
  int owner = -1, joined = 0, is_volatile = 0, i = 1;
  char work[1024] = "", directory[1024];
  if (getcwd(directory, sizeof directory) == NULL) strcpy(directory, "/");
  if (unshare(CLONE_NEWNS) < 0) fail("leaving", "the mount namespace");
  if (mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) fail("changing", "/");
  while (i < count && strcmp(arguments[i], "--") != 0) {
    char *name = arguments[i];
    errno = EINVAL;
    if (strcmp(name, "--owner") == 0 && i + 1 < count) {
      owner = owner_namespace(strtol(arguments[i + 1], NULL, 10));
      i += 2;
    } else if (strcmp(name, "--volatile") == 0) {
      is_volatile = 1;
      i++;
    } else if (strcmp(name, "--bind") == 0 && i + 2 < count) {
      if (!joined) bind_folder(arguments[i + 1], arguments[i + 2]);
      i += 3;
    } else if (strcmp(name, "--work") == 0 && i + 1 < count) {
      int other = make_work(arguments[i + 1], work, sizeof work);
      joined = other >= 0 && join(other, arguments + i);
      if (other >= 0) close(other);
      i += 2;
    } else if (strcmp(name, "--overlay") == 0 && i + 3 < count) {
      int layers = atoi(arguments[i + 3]);
      if (work[0] == 0 || layers < 1 || layers > MAX_LAYERS || i + 3 + layers >= count) fail("reading", name);
      if (!joined) overlay(arguments[i + 1], arguments[i + 2], work, layers, arguments + i + 4, owner, is_volatile);
      i += 4 + layers;
    } else {
      fail("reading", name);
    }
  }
  if (owner >= 0) close(owner);
  /* Entering a namespace leads to its root. */
  if (joined && chdir(directory) < 0 && chdir("/") < 0) fail("entering", directory);
  if (i + 1 >= count) fail("reading", "the command");
  execvp(arguments[i + 1], arguments + i + 1);
  dprintf(2, "%s: %s\n", arguments[i + 1], strerror(errno));
  return errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

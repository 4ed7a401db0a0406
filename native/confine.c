/*
 * Starts one program under limits and with fewer rights than this process has.
 *
 *   confine [option]... -- program [argument]...
 *   confine --idle
 *
 * This is the only program that takes rights away from an agent's process, on every driver: as root of the host, as
 * root of a container, and as the first program inside a sandbox's namespaces. It therefore trusts nothing
 * that the tenant controls. It is linked statically, so no variable and no file can put other code into it, and it is
 * called by an absolute path with a fixed environment. The tenant's variables come through a descriptor and are used by
 * execve alone. The program's name is looked up on the tenant's PATH only after all rights were dropped.
 *
 * Options are applied in the order of this list, whatever their order on the command line:
 *
 *   --cgroup FILE          joins a control group by writing to its cgroup.procs; may be repeated
 *   --fifo FILE            makes a named pipe for this user alone, if there is none yet; may be repeated
 *   --close                closes every descriptor above 2 that no other option names
 *   --detach               goes on as a child of init, in a session of its own; its caller's child ends at once
 *   --subreaper            becomes the parent of orphans below the program; kept across execve
 *   --reap                 runs the program as a child, and ends everything below it when it ends
 *   --oom-score-adj N      how likely the kernel ends it when memory is short
 *   --rlimit NAME=N        core, data, fsize, nofile or nproc, soft and hard; may be repeated
 *   --seal-input           replaces standard input by a read-only copy of it in memory
 *   --bind SOURCE=TARGET   shows a folder in the place of another, to the program alone; may be repeated
 *   --hide PATH            keeps a folder's contents, or a file, from the program; may be repeated
 *   --container-root       keeps only the capabilities that root of a container has: none over mounts, devices,
 *                          modules, other processes' memory or the network
 *   --user N               becomes the user and group N without other groups
 *   --drop-capabilities    gives up all capabilities, with the bounding and ambient sets
 *   --no-new-privileges    setuid programs give no rights from now on
 *   --die-with-parent      is killed when its parent ends
 *   --chdir PATH           the working directory
 *   --environment FD       replaces the environment by the NUL-terminated entries read from the descriptor, of
 *                          which the last one is empty
 *   --clear-environment    replaces the environment by a PATH of the system's folders
 *   --seccomp FD           installs the filter read from the descriptor (an array of struct sock_filter)
 *   --announce FD          writes one byte when the program is about to be executed
 *   --write-files HOME     writes the files in standard input, instead of running a program; see files.c
 *   --files                serves one access to files, instead of running a program; see serve-files.c
 *   --look-up              looks up the names after `--` on the PATH, instead of running a program; see files.c
 *
 * A step that fails ends this program with 125 and one line on standard error, so that the program never runs with
 * too many rights. 126 and 127 mean the same as in a shell: the program cannot be executed, or does not exist.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine.h"

#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define SYSTEM_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Ends this program with one line: what failed, and the kernel's reason if there is one. */
void fail(int error, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 2) length = sizeof line - 2;
  if (error != 0 && length < (int)sizeof line - 64)
    length += snprintf(line + length, sizeof line - 1 - length, ": %s", strerror(error));
  line[length++] = '\n';
  ssize_t ignored = write(2, line, length);
  (void)ignored;
  _exit(EXIT_NOT_CONFINED);
}

void check(int result, const char *what) {
  if (result < 0) fail(errno, "%s", what);
}

static void install_filter(const char *program, size_t length) {
  struct sock_fprog filter = {(unsigned short)(length / sizeof(struct sock_filter)),
                              (struct sock_filter *)(void *)program};
  check((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), "installing the seccomp filter");
}

static void close_others(void) {
  const int kept[] = {options.environment, options.seccomp, options.announce};
  unsigned int from = 3;
  for (;;) {
    unsigned int next = ~0U;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
      if (kept[i] >= (int)from && (unsigned int)kept[i] < next) next = (unsigned int)kept[i];
    if (next > from && syscall(SYS_close_range, from, next == ~0U ? ~0U : next - 1, 0) < 0) {
      /* Kernels before 5.9. */
      unsigned int last = next == ~0U ? 65535 : next - 1;
      for (unsigned int fd = from; fd <= last; fd++) close((int)fd);
    }
    if (next == ~0U) return;
    from = next + 1;
  }
}

static void write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) fail(errno, "writing to %s", path);
  close(fd);
}

static void drop_bounding_set(unsigned long long kept) {
  for (unsigned long capability = 0; capability < 64; capability++) {
    if (kept >> capability & 1) continue;
    int held = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (held < 0) return; /* past the last capability of this kernel */
    if (held > 0) check(prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "dropping the bounding set");
  }
}

static void drop_capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
    fail(errno, "clearing ambient capabilities");
  check((int)syscall(SYS_capset, &header, none), "dropping capabilities");
}

/* What root needs for installing software, as container engines choose it. */
static void keep_container_capabilities(void) {
  const unsigned long long kept = 1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER |
                                  1ULL << CAP_FSETID | 1ULL << CAP_KILL | 1ULL << CAP_SETGID | 1ULL << CAP_SETUID |
                                  1ULL << CAP_SETPCAP | 1ULL << CAP_SYS_CHROOT | 1ULL << CAP_SETFCAP;
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct held[2];
  drop_bounding_set(kept);
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
    fail(errno, "clearing ambient capabilities");
  check((int)syscall(SYS_capget, &header, held), "reading capabilities");
  for (int i = 0; i < 2; i++) {
    unsigned int part = (unsigned int)(kept >> (32 * i));
    held[i].effective &= part;
    held[i].permitted &= part;
    held[i].inheritable = 0;
  }
  check((int)syscall(SYS_capset, &header, held), "dropping capabilities");
}

static void confine(pid_t parent) {
  if (options.oom_score_adj != NULL) {
    /* Lowering the value needs a privilege. Errors are ignored, because a lower value would only protect the tenant. */
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
      ssize_t ignored = write(fd, options.oom_score_adj, strlen(options.oom_score_adj));
      (void)ignored;
      close(fd);
    }
  }
  for (int i = 0; i < options.limit_count; i++) {
    struct rlimit limit = {options.limits[i].value, options.limits[i].value}, present;
    if (getrlimit(options.limits[i].resource, &present) == 0 && present.rlim_max < limit.rlim_max)
      limit.rlim_cur = limit.rlim_max = present.rlim_max;
    check(setrlimit(options.limits[i].resource, &limit), "setting a limit");
  }
  if (options.bind_count + options.hide_count > 0) arrange_mounts();
  if (options.drop_capabilities && geteuid() == 0) drop_bounding_set(0);
  if (options.container_root) keep_container_capabilities();
  if (options.user >= 0) {
    uid_t user = (uid_t)options.user;
    check(setgroups(0, NULL), "dropping groups");
    check(setresgid(user, user, user), "changing the group");
    check(setresuid(user, user, user), "changing the user");
  }
  if (options.drop_capabilities) drop_capabilities();
  if (options.no_new_privileges) check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "setting no_new_privs");
  if (options.die_with_parent) {
    /* After the change of user, which clears it. */
    check(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "binding to the parent");
    if (getppid() != parent) _exit(128 + SIGKILL);
  }
  if (options.directory != NULL && chdir(options.directory) < 0) fail(errno, "entering %s", options.directory);
}

static void __attribute__((noreturn)) execute(char **command, pid_t parent) {
  static char *system_environment[] = {SYSTEM_PATH, NULL};
  size_t filter_length = 0;
  char *filter = options.seccomp < 0 ? NULL : read_all(options.seccomp, &filter_length);
  char **environment = options.environment >= 0     ? read_environment(options.environment)
                       : options.clear_environment ? system_environment
                                                   : environ;
  if (options.seal_input) seal_input();
  confine(parent);
  if (filter != NULL) install_filter(filter, filter_length);
  if (options.announce >= 0) {
    ssize_t ignored = write(options.announce, "r", 1);
    (void)ignored;
    close(options.announce);
  }
  /* All rights are dropped now, so execvp searches the tenant's PATH with the tenant's rights. */
  environ = environment;
  if (options.write_files != NULL) _exit(write_files(options.write_files));
  if (options.look_up) _exit(look_up(command));
  if (options.files) _exit(serve_files());
  execvp(command[0], command);
  dprintf(2, "%s: %s\n", command[0], strerror(errno));
  _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static void __attribute__((noreturn)) execute_and_reap(char **command) {
  sigset_t awaited, before;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  sigaddset(&awaited, SIGTERM);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  check(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "becoming a subreaper");
  pid_t parent = getppid();
  pid_t self = getpid();
  pid_t child = fork();
  check(child, "starting a process");
  if (child == 0) {
    /* A session of its own, so that signals to the program's group do not reach this process. */
    setsid();
    sigprocmask(SIG_SETMASK, &before, NULL);
    options.die_with_parent = 1;
    execute(command, self);
  }
  /* Ends everything if the supervisor ends, even if it is killed. */
  prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  if (getppid() != parent) kill(self, SIGTERM);
  reap(child, &awaited);
}

int main(int count, char **arguments) {
  pid_t parent = getppid();
  char **command = parse(count, arguments);
  if (options.idle) idle();
  if (*command == NULL && options.write_files == NULL && !options.files) fail(0, "no program is named");
  for (int i = 0; i < options.cgroup_count; i++) write_file(options.cgroups[i], "0");
  for (int i = 0; i < options.fifo_count; i++) {
    if (mkfifo(options.fifos[i], 0600) < 0 && errno != EEXIST) fail(errno, "making %s", options.fifos[i]);
  }
  if (options.close_others) close_others();
  if (options.detach) {
    pid_t child = fork();
    check(child, "detaching");
    if (child > 0) _exit(0);
    check(setsid(), "starting a session");
    parent = getppid();
  }
  if (options.subreaper) check(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "becoming a subreaper");
  if (options.reap) execute_and_reap(command);
  execute(command, parent);
}

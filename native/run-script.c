/*
 * Runs a script of the service for `confine --files`, with the agent's rights: its output becomes items, and the last
 * item is its exit code. Everything that it has started ends with it, with the caller, or at its time limit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "confine.h"
#include "files.h"

#define SHELL "/bin/bash"

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void __attribute__((noreturn)) execute_script(const char *script, int output, const char *home) {
  char home_entry[PATH_MAX + 8], tmp_entry[PATH_MAX + 8];
  const char *tmp = getenv("TMPDIR");
  snprintf(home_entry, sizeof home_entry, "HOME=%s", home);
  snprintf(tmp_entry, sizeof tmp_entry, "TMPDIR=%s", tmp == NULL ? "/tmp" : tmp);
  char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", home_entry,
                         tmp_entry, NULL};
  char *command[] = {SHELL, "--noprofile", "--norc", "-c", (char *)script, NULL};
  int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(output, 1);
  dup2(null, 2);
  syscall(SYS_close_range, 3U, ~0U, 0);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  umask(077);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  execve(SHELL, command, environment);
  _exit(127);
}

void run_script(int folder, const char *script, const char *home, long long limit_ms) {
  int output[2], status = 0;
  long long end = now_ms() + limit_ms;
  if (fchdir(folder) < 0) refuse_errno(errno, "entering the folder");
  if (pipe2(output, O_CLOEXEC) < 0) refuse_errno(errno, "making a pipe");
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  pid_t child = fork();
  if (child < 0) refuse_errno(errno, "starting a process");
  if (child == 0) execute_script(script, output[1], home);
  close(output[1]);
  for (;;) {
    struct pollfd ready[] = {{output[0], POLLIN, 0}, {0, POLLIN, 0}};
    long long left = end - now_ms();
    if (left <= 0 || poll(ready, 2, (int)left) == 0) {
      end_children();
      refuse("failed", "it took too long");
    }
    if (ready[1].revents != 0) {
      /* The caller is gone, or has sent the end of its input. */
      char rest[4096];
      if (read(0, rest, sizeof rest) <= 0) {
        end_children();
        _exit(0);
      }
    }
    if (ready[0].revents == 0) continue;
    if (send_available(output[0]) == 0) break;
  }
  if (waitpid(child, &status, 0) < 0) status = 0x100;
  end_children();
  send_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

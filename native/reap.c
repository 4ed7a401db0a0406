/* Reaps processes: those of a launch, and orphans when this is the first process of a container. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine.h"

/*
 * Kills and reaps children until none is left. This process is a subreaper, so it inherits the children of those it
 * kills.
 */
void end_children(void) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  for (;;) {
    FILE *children = fopen(path, "re");
    int pid;
    if (children != NULL) {
      while (fscanf(children, "%d", &pid) == 1)
        if (pid > 1) kill(pid, SIGKILL);
      fclose(children);
    }
    int status;
    pid_t ended = waitpid(-1, &status, children == NULL ? WNOHANG : 0);
    if (ended == 0) return;
    if (ended < 0 && errno == ECHILD) return;
    while (waitpid(-1, &status, WNOHANG) > 0) continue;
  }
}

void reap(pid_t main_child, const sigset_t *awaited) {
  /* Closes the output here, because readers see its end only when the last process has closed it. */
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2 && null >= 0; fd++) dup2(null, fd);
  syscall(SYS_close_range, 3U, ~0U, 0);
  for (;;) {
    siginfo_t info;
    if (sigwaitinfo(awaited, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      end_children();
      _exit(128 + info.si_signo);
    }
    int status;
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended != main_child) continue;
      end_children();
      _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
  }
}

void idle(void) {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  sigaddset(&awaited, SIGTERM);
  sigaddset(&awaited, SIGINT);
  sigprocmask(SIG_BLOCK, &awaited, NULL);
  for (;;) {
    siginfo_t info;
    if (sigwaitinfo(&awaited, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) _exit(0);
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
  }
}

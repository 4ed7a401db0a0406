/* Declarations that the parts of `confine` share. */
#ifndef CONFINE_H
#define CONFINE_H

#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#define EXIT_NOT_CONFINED 125
#define MAX_REPEATED 16

struct limit {
  int resource;
  rlim_t value;
};

/* The command line; see the list at the top of confine.c. */
struct options {
  const char *cgroups[MAX_REPEATED];
  int cgroup_count;
  const char *fifos[MAX_REPEATED];
  int fifo_count;
  const char *binds[MAX_REPEATED];
  int bind_count;
  const char *hidden[MAX_REPEATED];
  int hide_count;
  struct limit limits[MAX_REPEATED];
  int limit_count;
  const char *oom_score_adj;
  const char *directory;
  const char *write_files;
  long user;
  int environment;
  int seccomp;
  int announce;
  int close_others, subreaper, reap, drop_capabilities, no_new_privileges, die_with_parent;
  int clear_environment, idle, seal_input, look_up, files, container_root, detach;
};
extern struct options options;

/* Fills `options`. Returns the program and its arguments. */
char **parse(int count, char **arguments);

/* Ends this program with one line: what failed, and the kernel's reason if there is one. */
void fail(int error, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Fails for a negative result, with the reason in errno. */
void check(int result, const char *what);

/* Reads a descriptor to its end and closes it; a zero byte follows the data. */
char *read_all(int fd, size_t *length);
/* Reads NUL-terminated entries as an environment. */
char **read_environment(int fd);
/* Replaces standard input by a copy in memory that nobody can write to. */
void seal_input(void);

/* Kills and reaps all children, of which this process must be the subreaper. */
void end_children(void);

/* Gives this process mounts of its own, with the folders that `options` binds and hides. */
void arrange_mounts(void);

/* Waits for the main child, then ends everything below this process and exits with the child's status. */
void reap(pid_t main_child, const sigset_t *awaited) __attribute__((noreturn));
/* Runs as the first process of a container: collects orphans until it is told to end. */
void idle(void) __attribute__((noreturn));

/* In place of a program, with its rights; all return the exit code. */
int write_files(const char *home);
int look_up(char **names);
int serve_files(void);

#endif

/* Declarations that the parts of `confine --files` share. */
#ifndef FILES_H
#define FILES_H

#include <dirent.h>
#include <limits.h>
#include <stddef.h>
#include <sys/stat.h>

/* The two folders that clients may access, as absolute paths. */
struct roots {
  const char *home;
  const char *workspace;
};

/* An entry of a folder; without a name, the folder itself. The descriptor belongs to `resolve`. */
struct place {
  int folder;
  char name[NAME_MAX + 1];
};

/* Does not follow a link that is the last component. */
#define KEEP_LINK 1
/* Makes missing parent folders. */
#define MAKE_PARENTS 2

/* Finds a path. Returns -1 with errno; ENOENT also for a path that leads out of the roots. Not reentrant. */
int resolve(const struct roots *roots, const char *path, int flags, struct place *place);

#define PIECE_BYTES (64 * 1024)
/* A relative path in a tree; longer ones fail, so that an entry always fits into one frame. */
#define TREE_PATH_BYTES 8192

/* Writes bytes that are not UTF-8 as U+FFFD. `shown` has room for three times the length of `name`, and a zero. */
void show_name(const char *name, char *shown);

/* Sends one frame of src/supervisor/protocol/frames.ts that describes an entry. `target`: of a link, or NULL. */
void send_entry(const char *name, const struct stat *entry, const char *target);
/*
 * Sends `length` bytes of a file from its present position, without copying them through this process where the kernel
 * can do that. If the file has fewer, the rest is filled with zeros, or not sent. Returns the number of bytes sent.
 */
long long send_content(int file, long long length, int filled);
/* Sends the error and ends this process. */
void refuse(const char *kind, const char *message) __attribute__((noreturn));
/* As `refuse`, for an error of the kernel. */
void refuse_errno(int error, const char *what) __attribute__((noreturn));

void list_folder(int folder, const char *after, int limit);
/* Sends a tree in the order that its folders have it, each file followed by exactly as many bytes as its entry says. */
void send_tree(int folder);
/* Removes an entry with everything in it. Returns -1 with errno. */
int remove_tree(int folder, const char *name);

/* Sends what can be read at once, up to one piece. Returns 0 at the end. */
int send_available(int file);
/* Sends the exit code of a script as an item. */
void send_exit(int code);
/* Runs a script in a folder, and sends its output and its exit code. */
void run_script(int folder, const char *script, const char *home, long long limit_ms);

#endif

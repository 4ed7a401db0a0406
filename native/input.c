/* Reads the environment, the seccomp filter and standard input from descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine.h"

#define MAX_DATA_BYTES (64u * 1024 * 1024)
/* Kernels before 6.3 reject this flag. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

char *read_all(int fd, size_t *length) {
  size_t room = 64 * 1024, used = 0;
  char *data = malloc(room);
  for (;;) {
    if (data == NULL || room > MAX_DATA_BYTES) fail(ENOMEM, "reading from descriptor %d", fd);
    ssize_t got = read(fd, data + used, room - used - 1);
    if (got < 0 && errno == EINTR) continue;
    check((int)(got < 0 ? -1 : 0), "reading from a descriptor");
    if (got == 0) break;
    used += (size_t)got;
    if (used + 1 == room) data = realloc(data, room *= 2);
  }
  close(fd);
  data[used] = '\0';
  *length = used;
  return data;
}

char **read_environment(int fd) {
  size_t length, count = 0;
  char *data = read_all(fd, &length);
  /* An empty entry is the last one: whoever writes may have been killed in the middle, or before the beginning. */
  if (length == 0 || data[length - 1] != '\0' || (length > 1 && data[length - 2] != '\0'))
    fail(0, "the environment is incomplete");
  length--;
  for (size_t i = 0; i < length; i++) count += data[i] == '\0';
  char **entries = calloc(count + 2, sizeof *entries);
  if (entries == NULL) fail(ENOMEM, "reading the environment");
  size_t n = 0;
  for (char *at = data; at < data + length; at += strlen(at) + 1) entries[n++] = at;
  return entries;
}

/*
 * Uses memory rather than a file on disk: the owner of such a file could reopen it for writing through /proc/self/fd.
 * Seals hold for every descriptor.
 */
void seal_input(void) {
  int file = (int)syscall(SYS_memfd_create, "input", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (file < 0 && errno == EINVAL)
    file = (int)syscall(SYS_memfd_create, "input", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  check(file, "making a file in memory");
  char piece[64 * 1024];
  for (size_t total = 0;;) {
    ssize_t got = read(0, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    check((int)got, "reading standard input");
    if (got == 0) break;
    if ((total += (size_t)got) > MAX_DATA_BYTES) fail(EFBIG, "standard input");
    for (ssize_t done = 0; done < got;) {
      ssize_t wrote = write(file, piece + done, (size_t)(got - done));
      check((int)wrote, "keeping standard input in memory");
      done += wrote;
    }
  }
  check(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), "sealing standard input");
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  int reader = open(path, O_RDONLY | O_CLOEXEC);
  if (reader < 0) check((int)lseek(reader = file, 0, SEEK_SET), "rewinding standard input");
  check(dup2(reader, 0), "replacing standard input");
}

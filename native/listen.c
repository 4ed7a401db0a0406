/*
 * Makes the listening sockets of a sandbox's relay in the sandbox's network namespace, and passes them to the supervisor,
 * which serves them from outside. A socket keeps the namespace that it was made in.
 *
 *   listen 'PROTOCOL,ADDRESS,PORT[,optional] ...'
 *
 * PROTOCOL is tcp or udp; the address is IPv4 or IPv6; a space separates sockets. An optional socket that cannot be bound is left out.
 *
 * It runs before anything of the tenant does, and ends when the supervisor has taken all sockets. It speaks the protocol
 * of the channel between Node and its children (NODE_CHANNEL_FD, lines of JSON), because Node accepts descriptors only
 * there: each socket is sent with the message {"kind":"listener","index":N}, where N counts the sockets from 0, and Node
 * acknowledges it. When the supervisor has everything, it sends {"kind":"adopted"}. A Node program could do the same, but
 * takes about 30 ms longer to start, at every launch.
 *
 * Exits with 0 after that, and with 1 and one line on standard error if something fails.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Longer than any healthy supervisor takes. Keeps an orphan from waiting forever. */
#define TIMEOUT_MS 10000
/* As many as Node's servers keep waiting. */
#define BACKLOG 511
#define LONGEST_LINE 1024

#define MOST_LISTENERS 4096

struct listener {
  const char *protocol, *address;
  int port, optional;
};

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("relay listeners: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(1);
}

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

static struct listener parse(char *text) {
  char *rest;
  struct listener made = {.protocol = strtok_r(text, ",", &rest)};
  made.address = strtok_r(NULL, ",", &rest);
  const char *port = strtok_r(NULL, ",", &rest), *optional = strtok_r(NULL, ",", &rest);
  if (port == NULL || (strcmp(made.protocol, "tcp") != 0 && strcmp(made.protocol, "udp") != 0))
    fail("not a listener: %s", made.protocol == NULL ? "" : made.protocol);
  made.port = atoi(port);
  made.optional = optional != NULL && strcmp(optional, "optional") == 0;
  return made;
}

/* Returns a socket, or -1 with the reason in errno. */
static int bound(const struct listener *wanted) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((unsigned short)wanted->port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((unsigned short)wanted->port)};
  int is_v6 = inet_pton(AF_INET, wanted->address, &v4.sin_addr) != 1;
  if (is_v6 && inet_pton(AF_INET6, wanted->address, &v6.sin6_addr) != 1) {
    errno = EINVAL;
    return -1;
  }
  int is_tcp = strcmp(wanted->protocol, "tcp") == 0, on = 1;
  int type = (is_tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK;
  int fd = socket(is_v6 ? AF_INET6 : AF_INET, type, 0);
  if (fd < 0) return -1;
  const struct sockaddr *address = is_v6 ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4;
  if ((!is_tcp || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0) &&
      bind(fd, address, is_v6 ? sizeof v6 : sizeof v4) == 0 && (!is_tcp || listen(fd, BACKLOG) == 0))
    return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/* Sends one line, with a socket unless `fd` is negative. */
static void send_line(int channel, const char *line, int fd) {
  struct iovec text = {(void *)(size_t)line, strlen(line)};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control;
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
  if (fd >= 0) {
    memset(&control, 0, sizeof control);
    message.msg_control = &control;
    message.msg_controllen = sizeof control.space;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  }
  /* A line is shorter than the channel's buffer, which is empty: the supervisor has answered the last one. */
  if (sendmsg(channel, &message, MSG_NOSIGNAL) != (ssize_t)text.iov_len)
    fail("the channel does not take a message: %s", strerror(errno));
}

/* Waits for a line that contains the text. Anything else that arrives means that the supervisor does not take part. */
static void await_line(int channel, const char *wanted, long until) {
  static char line[LONGEST_LINE];
  size_t length = 0;
  for (;;) {
    struct pollfd readable = {channel, POLLIN, 0};
    long left = until - now_ms();
    if (left <= 0 || poll(&readable, 1, (int)left) == 0) fail("the parent did not take the sockets in time");
    char byte;
    ssize_t got = read(channel, &byte, 1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) fail("the parent closed the channel before it had the sockets");
    if (byte != '\n') {
      if (length == sizeof line - 1) fail("the parent sent a line that is too long");
      line[length++] = byte;
      continue;
    }
    line[length] = 0;
    if (strstr(line, wanted) != NULL) return;
    fail("the parent did not take a socket: %s", line);
  }
}

int main(int count, char **arguments) {
  const char *channel_text = getenv("NODE_CHANNEL_FD");
  if (channel_text == NULL) fail("started without an IPC channel");
  int channel = atoi(channel_text);
  long until = now_ms() + TIMEOUT_MS;
  if (count != 2) fail("needs one argument");
  char line[LONGEST_LINE], *rest;
  static int sockets[MOST_LISTENERS];
  int made = 0;
  /* All are bound before any is passed on, so that the supervisor never takes only some. */
  for (char *text = strtok_r(arguments[1], " ", &rest); text != NULL; text = strtok_r(NULL, " ", &rest)) {
    if (made == MOST_LISTENERS) fail("too many sockets");
    struct listener wanted = parse(text);
    sockets[made++] = bound(&wanted);
    if (sockets[made - 1] < 0 && !wanted.optional)
      fail("cannot listen on %s %s port %d: %s", wanted.protocol, wanted.address, wanted.port, strerror(errno));
  }
  for (int i = 0; i < made; i++) {
    if (sockets[i] < 0) {
      snprintf(line, sizeof line, "{\"kind\":\"listener\",\"index\":%d,\"skipped\":true}\n", i);
      send_line(channel, line, -1);
      continue;
    }
    snprintf(line, sizeof line,
             "{\"cmd\":\"NODE_HANDLE\",\"type\":\"net.Native\",\"msg\":{\"kind\":\"listener\",\"index\":%d}}\n", i);
    send_line(channel, line, sockets[i]);
    await_line(channel, "\"NODE_HANDLE_ACK\"", until);
    close(sockets[i]);
  }
  await_line(channel, "\"adopted\"", until);
  return 0;
}

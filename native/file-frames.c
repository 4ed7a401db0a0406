/* Reads and writes the frames of src/supervisor/protocol/frames.ts for `confine --files`. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file-frames.h"
#include "files.h"

#define FRAME_HEADER_BYTES 9
#define DATA_HEADER "{}"
/* How many bytes of a file one frame has at most, and one call of sendfile sends. */
#define MAX_CONTENT_BYTES (1LL << 30)
#define MAX_SENT_BYTES (1 << 20)
/* JavaScript's largest exact integer. */
#define LARGEST_NUMBER ((1LL << 53) - 1)

unsigned char payload[MAX_PAYLOAD_BYTES + 1];
size_t payload_length;
int draft_folder = -1;
char draft_name[DRAFT_NAME_BYTES];

static void put_number(unsigned char *at, size_t value) {
  for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (8 * i));
}

void leave(int code) {
  if (draft_folder >= 0) unlinkat(draft_folder, draft_name, 0);
  _exit(code);
}

static void write_all(const unsigned char *data, size_t length) {
  for (size_t done = 0; done < length;) {
    ssize_t wrote = write(1, data + done, length - done);
    if (wrote < 0 && errno != EINTR) leave(1);
    if (wrote > 0) done += (size_t)wrote;
  }
}

void finish(void) {
  if (draft_folder >= 0) unlinkat(draft_folder, draft_name, 0);
  draft_folder = -1;
  for (;;) {
    ssize_t got = read(0, payload, sizeof payload);
    if (got == 0 || (got < 0 && errno != EINTR)) _exit(0);
  }
}

/* Returns 0 at the end of the input. */
static int read_all_of(unsigned char *data, size_t length) {
  for (size_t done = 0; done < length;) {
    ssize_t got = read(0, data + done, length - done);
    if (got == 0 || (got < 0 && errno != EINTR)) return 0;
    if (got > 0) done += (size_t)got;
  }
  return 1;
}

int read_header(void) {
  unsigned char header[FRAME_HEADER_BYTES];
  if (!read_all_of(header, sizeof header)) leave(0);
  payload_length = header[0] | (size_t)header[1] << 8 | (size_t)header[2] << 16 | (size_t)header[3] << 24;
  return header[4];
}

int read_frame(void) {
  int type = read_header();
  if (payload_length > MAX_PAYLOAD_BYTES || !read_all_of(payload, payload_length)) leave(0);
  payload[payload_length] = '\0';
  return type;
}

void split(const char **fields) {
  const char *at = (const char *)payload, *end = at + payload_length;
  for (int i = 0; i < MAX_FIELDS; i++) {
    fields[i] = at < end ? at : "";
    if (at < end) at += strlen(at) + 1;
  }
}

void send_frame(int type, const char *body, size_t length) {
  static unsigned char frame[FRAME_HEADER_BYTES + MAX_PAYLOAD_BYTES];
  put_number(frame, length);
  frame[4] = (unsigned char)type;
  memset(frame + 5, 0, 4);
  memcpy(frame + FRAME_HEADER_BYTES, body, length);
  write_all(frame, FRAME_HEADER_BYTES + length);
}

static size_t put_text(char *at, const char *text) {
  char *start = at;
  *at++ = '"';
  for (; *text != '\0'; text++) {
    unsigned char byte = (unsigned char)*text;
    if (byte < 0x20) at += sprintf(at, "\\u%04x", byte);
    else {
      if (byte == '"' || byte == '\\') *at++ = '\\';
      *at++ = (char)byte;
    }
  }
  *at++ = '"';
  return (size_t)(at - start);
}

void refuse(const char *kind, const char *message) {
  char body[1024];
  size_t length = (size_t)snprintf(body, sizeof body, "{\"kind\":\"%s\",\"message\":\"%s\"}", kind, message);
  send_frame(ERROR, body, length);
  finish();
}

void refuse_errno(int error, const char *what) {
  const char *kind = "failed";
  if (error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG) kind = "missing";
  if (error == EACCES || error == EPERM || error == EROFS || error == EISDIR || error == EAGAIN || error == ETXTBSY ||
      error == ENOTEMPTY || error == EBUSY)
    kind = "conflict";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) kind = "full";
  char message[256];
  snprintf(message, sizeof message, "%s: %s", what, strerror(error));
  refuse(kind, message);
}

void send_entry(const char *name, const struct stat *entry, const char *target) {
  static char body[MAX_PAYLOAD_BYTES];
  char *at = body + 4;
  const char *type = S_ISREG(entry->st_mode)   ? "file"
                     : S_ISDIR(entry->st_mode) ? "directory"
                     : S_ISLNK(entry->st_mode) ? "symlink"
                                               : "other";
  long long size = entry->st_size > LARGEST_NUMBER ? LARGEST_NUMBER : entry->st_size;
  at += sprintf(at, "{\"type\":\"%s\",\"size\":%lld,\"mode\":%u,\"name\":", type, S_ISREG(entry->st_mode) ? size : 0,
                (unsigned)entry->st_mode & 07777);
  at += put_text(at, name);
  // The device's number changes whenever the file system is mounted again, so it says nothing about the file. The time of
  // the last change cannot be set by the agent, unlike that of the last modification.
  at += sprintf(at, ",\"mtime\":\"%lld.%09ld\",\"identity\":\"%jx-%jx\"", (long long)entry->st_mtim.tv_sec,
                entry->st_mtim.tv_nsec, (uintmax_t)entry->st_ino,
                (uintmax_t)entry->st_ctim.tv_sec * 1000000000 + (uintmax_t)entry->st_ctim.tv_nsec);
  if (target != NULL) {
    at += sprintf(at, ",\"target\":");
    at += put_text(at, target);
  }
  *at++ = '}';
  put_number((unsigned char *)body, (size_t)(at - body - 4));
  send_frame(ITEM, body, (size_t)(at - body));
}

/* One item of bytes, which `piece` has after room for the headers. */
#define PIECE_START (FRAME_HEADER_BYTES + 4 + sizeof DATA_HEADER - 1)
static unsigned char piece[PIECE_START + PIECE_BYTES];

static void send_piece(size_t length) {
  put_number(piece, PIECE_START - FRAME_HEADER_BYTES + length);
  piece[4] = ITEM;
  memset(piece + 5, 0, 4);
  put_number(piece + FRAME_HEADER_BYTES, sizeof DATA_HEADER - 1);
  memcpy(piece + FRAME_HEADER_BYTES + 4, DATA_HEADER, sizeof DATA_HEADER - 1);
  write_all(piece, PIECE_START + length);
}

static void send_content_header(long long length) {
  unsigned char header[FRAME_HEADER_BYTES] = {0};
  put_number(header, (size_t)length);
  header[4] = CONTENT;
  write_all(header, sizeof header);
}

/* Sends what a file still has of `length` bytes, without a frame. Returns the number of bytes that were sent. */
static long long send_bytes(int file, long long length) {
  int copies = 0;
  long long sent = 0;
  while (sent < length) {
    size_t wanted = length - sent < MAX_SENT_BYTES ? (size_t)(length - sent) : MAX_SENT_BYTES;
    if (copies && wanted > PIECE_BYTES) wanted = PIECE_BYTES;
    ssize_t got = copies ? read(file, piece, wanted) : sendfile(1, file, NULL, wanted);
    if (got < 0 && errno == EINTR) continue;
    /* The caller has closed the connection. */
    if (got < 0 && (errno == EPIPE || errno == ECONNRESET)) leave(1);
    if (got < 0 && !copies) {
      /* Not every file system and not every kind of output can do it. An error of the disk is reported by `read`, too. */
      copies = 1;
      continue;
    }
    if (got <= 0) break;
    if (copies) write_all(piece, (size_t)got);
    sent += got;
  }
  return sent;
}

/* Sends zeros without a frame. */
static void write_zeros(long long length) {
  memset(piece, 0, PIECE_BYTES);
  for (; length > 0; length -= PIECE_BYTES) write_all(piece, length < PIECE_BYTES ? (size_t)length : PIECE_BYTES);
}

long long send_content(int file, long long length, int filled) {
  long long sent = 0;
  while (sent < length) {
    long long span = length - sent < MAX_CONTENT_BYTES ? length - sent : MAX_CONTENT_BYTES;
    send_content_header(span);
    long long got = send_bytes(file, span);
    sent += got;
    if (got == span) continue;
    if (!filled) return sent;
    write_zeros(span - got);
    sent += span - got;
  }
  return sent;
}

int send_available(int file) {
  ssize_t got = read(file, piece + PIECE_START, PIECE_BYTES);
  if (got < 0 && errno == EINTR) return 1;
  if (got > 0) send_piece((size_t)got);
  return got > 0;
}

void send_exit(int code) {
  char body[64];
  int length = sprintf(body + 4, "{\"exit\":%d}", code);
  put_number((unsigned char *)body, (size_t)length);
  send_frame(ITEM, body, (size_t)length + 4);
}

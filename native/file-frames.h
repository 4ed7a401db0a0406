/* The frames of src/supervisor/protocol/frames.ts, as `confine --files` exchanges them over standard input and output. */
#ifndef FILE_FRAMES_H
#define FILE_FRAMES_H

#include <stddef.h>

enum { HELLO = 1, CALL = 2, INPUT = 3, INPUT_END = 4, ITEM = 7, END = 8, ERROR = 9, CONTENT = 11 };
#define MAX_PAYLOAD_BYTES (128 * 1024)
#define MAX_FIELDS 8
#define DRAFT_NAME_BYTES 64

/* Of the last frame, with a zero after it. After `read_header` only its length is known. */
extern unsigned char payload[MAX_PAYLOAD_BYTES + 1];
extern size_t payload_length;
/* The temporary file that is removed if this process ends early; -1: none. */
extern int draft_folder;
extern char draft_name[DRAFT_NAME_BYTES];

/* Ends this process at once. */
void leave(int code) __attribute__((noreturn));
/*
 * Ends when the caller has read everything and closes the connection. To end earlier would reset a socket on which more
 * input is under way, and with it what was sent.
 */
void finish(void) __attribute__((noreturn));
/* Returns the type of the next frame, whose payload is still to be read from standard input. */
int read_header(void);
/* Reads a whole frame. Returns its type. Ends this process at the end of the input, or if the frame is too long. */
int read_frame(void);
/* Splits the payload into MAX_FIELDS NUL-terminated fields. Missing ones are empty. */
void split(const char **fields);
void send_frame(int type, const char *body, size_t length);

#endif

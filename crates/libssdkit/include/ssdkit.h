/*
 * libssdkit: application channels to drives that `ssdkit serve DRIVE --channel PATH`
 * serves. Requests reach the drive by memory that both processes have; while both are
 * awake that takes no system call.
 *
 * A channel is one thread's at a time. Several may be open at once. After fork() it is
 * one process's alone: the other calls nothing here for it. It ends when the last copy
 * of its descriptor is closed; exec() closes those that it inherited. Nothing here
 * installs signal handlers, starts threads, or allocates after ssdkit_open.
 *
 * Examples: examples/channel-c. Documentation: docs/channels.md.
 */
#ifndef SSDKIT_H
#define SSDKIT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operations: opcodes of the NVM command set. */
enum {
	SSDKIT_FLUSH = 0x00,		/* what completed before becomes durable */
	SSDKIT_WRITE = 0x01,
	SSDKIT_READ = 0x02,
	SSDKIT_WRITE_ZEROES = 0x08,
	SSDKIT_TRIM = 0x09,
};

/* Flags of a request. */
enum {
	SSDKIT_FUA = 1,			/* complete a write or trim when it is durable */
};

struct ssdkit_channel;

/* What is asked of a channel. All zeros is a good start. */
struct ssdkit_options {
	uint32_t depth;			/* requests out at once, 1 to 4096; 0 for 32 */
	uint32_t most;			/* longest read or write in bytes; 0 for the drive's */
	uint64_t memory;		/* bytes of buffers; 0 for `depth` of the longest */
	uint64_t linger_ns;		/* how long ssdkit_wait looks before it sleeps, 1 s at
					   most; 0 for 200 us, 1 for not at all */
};

/* What there is. */
struct ssdkit_info {
	uint64_t bytes;			/* capacity of the drive */
	uint64_t memory;		/* bytes of buffers */
	uint32_t kept;			/* bytes moved per block of 4096: 4096, 8 (digests), 0 */
	uint32_t most;			/* longest read or write, bytes */
	uint32_t most_trim;		/* longest trim or write of zeros, bytes */
	uint32_t depth;			/* requests that may be out */
	uint32_t read_only;		/* 1 where the drive takes no writes */
	uint32_t reserved;
};

/* A request. Offset and length are in bytes, multiples of 512. */
struct ssdkit_request {
	uint64_t id;			/* the caller's own; comes back */
	uint64_t offset;		/* on the drive */
	uint32_t len;
	uint32_t buffer;		/* where the data are, from ssdkit_buffers() on */
	uint8_t op;
	uint8_t flags;
	uint8_t placement;		/* writes that are given up together: a number; else 0 */
	uint8_t reserved[5];		/* 0 */
};

/* How a request ended: 0, or an NVMe status (type in bits 8 to 10, code in 0 to 7). */
struct ssdkit_completion {
	uint64_t id;
	uint16_t status;
	uint16_t reserved[3];
};

/* Opens a channel; `options` may be NULL. 0, or -1 (see ssdkit_error). */
int ssdkit_open(const char *path, const struct ssdkit_options *options,
		struct ssdkit_channel **channel);

/* Closes it. What is out is done, and nobody is told. NULL is let pass. */
void ssdkit_close(struct ssdkit_channel *channel);

/* Tells of the drive and the channel. */
void ssdkit_info(const struct ssdkit_channel *channel, struct ssdkit_info *info);

/* Where the buffers begin, aligned to 4096; there until ssdkit_close. A buffer is the
 * server's from ssdkit_submit until its completion was taken. */
void *ssdkit_buffers(const struct ssdkit_channel *channel);

/* Submits a prefix of the requests and wakes the server if it sleeps. Gives how many
 * were taken: fewer where as many are out as may be. -1 where one has an unknown
 * operation, flag, or a reserved byte; those before it were taken. */
int ssdkit_submit(struct ssdkit_channel *channel, const struct ssdkit_request *requests,
		  uint32_t count);

/* Takes completions that are there, at most so many; does not wait. Gives how many,
 * or -1 where the channel has ended or its server broke the protocol. */
int ssdkit_poll(struct ssdkit_channel *channel, struct ssdkit_completion *done,
		uint32_t most);

/* Waits until there is a completion, or for so long; a negative time is for ever. 1
 * where there is one, 0 where there is none (at once where nothing is out), or -1: a
 * server that is gone is told by the first wait that finds no completion, however short. */
int ssdkit_wait(struct ssdkit_channel *channel, int64_t timeout_ns);

/* For an event loop of the caller's own: arm, poll once more, wait until the descriptor
 * is readable, disarm, which takes the wake-up back. ssdkit_disarm gives 0, or -1 where
 * the channel has ended. */
int ssdkit_fd(const struct ssdkit_channel *channel);
void ssdkit_arm(const struct ssdkit_channel *channel);
int ssdkit_disarm(const struct ssdkit_channel *channel);

/* Why the last call of this thread that gave -1 did, in words; there until the next. What is
 * longer than 1023 bytes is cut. */
const char *ssdkit_error(void);

#ifdef __cplusplus
}
#endif

#endif

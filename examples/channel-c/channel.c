/*
 * Writes blocks to a served drive, many at once, reads them back, and checks them.
 *
 *     ssdkit serve mem:znand,size=1G --channel /tmp/ssd.channel &
 *     cc channel.c $(pkg-config --cflags --libs ssdkit) -o channel
 *     ./channel /tmp/ssd.channel 10000
 *
 * Ends with 0 where all went well, else with 1.
 */
#include <ssdkit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 32
#define BLOCK 4096

static struct ssdkit_channel *channel;
static struct ssdkit_info info;
static char *buffers;

static void die(const char *what)
{
	fprintf(stderr, "channel: %s: %s\n", what, ssdkit_error());
	exit(1);
}

/* What block `n` is filled with. */
static int byte_of(uint64_t n)
{
	return (int)(n * 31 % 251 + 1);
}

static void check(uint64_t n, const char *data)
{
	for (int i = 0; i < BLOCK; i++)
		if (data[i] != (char)byte_of(n)) {
			fprintf(stderr, "channel: block %llu is wrong at byte %d\n",
				(unsigned long long)n, i);
			exit(1);
		}
}

/* Does `op` with `count` blocks, DEPTH at a time. A buffer is its place's. */
static void all(uint8_t op, uint64_t count)
{
	struct ssdkit_completion done[DEPTH];
	uint64_t block_of[DEPTH], next = 0, ended = 0;
	uint32_t free_places[DEPTH], nfree = DEPTH;

	for (uint32_t i = 0; i < DEPTH; i++)
		free_places[i] = i;
	while (ended < count) {
		while (next < count && nfree > 0) {
			uint32_t place = free_places[--nfree];
			struct ssdkit_request request = {
				.id = place,
				.op = op,
				.offset = next * BLOCK % info.bytes,
				.len = BLOCK,
				.buffer = place * BLOCK,
			};

			block_of[place] = next++;
			if (op == SSDKIT_WRITE)
				memset(buffers + request.buffer, byte_of(block_of[place]), BLOCK);
			if (ssdkit_submit(channel, &request, 1) != 1)
				die("submit");
		}
		if (ssdkit_wait(channel, -1) < 0)
			die("wait");
		int found = ssdkit_poll(channel, done, DEPTH);
		if (found < 0)
			die("poll");
		for (int i = 0; i < found; i++) {
			uint32_t place = (uint32_t)done[i].id;

			if (done[i].status != 0) {
				fprintf(stderr, "channel: block %llu: status %#x\n",
					(unsigned long long)block_of[place], done[i].status);
				exit(1);
			}
			if (op == SSDKIT_READ)
				check(block_of[place], buffers + place * BLOCK);
			free_places[nfree++] = place;
			ended++;
		}
	}
}

static void flush(void)
{
	struct ssdkit_request request = { .op = SSDKIT_FLUSH };
	struct ssdkit_completion done;

	if (ssdkit_submit(channel, &request, 1) != 1 || ssdkit_wait(channel, -1) != 1 ||
	    ssdkit_poll(channel, &done, 1) != 1)
		die("flush");
	if (done.status != 0) {
		fprintf(stderr, "channel: flush: status %#x\n", done.status);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct ssdkit_options options = {
		.depth = DEPTH, .most = BLOCK, .linger_ns = 50 * 1000,
	};

	if (argc != 3) {
		fprintf(stderr, "usage: %s PATH BLOCKS\n", argv[0]);
		return 2;
	}
	if (ssdkit_open(argv[1], &options, &channel) < 0)
		die("open");
	ssdkit_info(channel, &info);
	if (info.kept != BLOCK) {
		fprintf(stderr, "channel: this drive keeps no data\n");
		return 1;
	}
	buffers = ssdkit_buffers(channel);

	uint64_t count = strtoull(argv[2], NULL, 10);

	if (count > info.bytes / BLOCK)
		count = info.bytes / BLOCK;
	all(SSDKIT_WRITE, count);
	flush();
	all(SSDKIT_READ, count);
	printf("%llu blocks written, flushed and read back\n", (unsigned long long)count);
	ssdkit_close(channel);
	return 0;
}

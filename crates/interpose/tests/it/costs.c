/* What calls take, in ns each, on a line. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char data[4096];

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

int main(void) {
    enum { COUNT = 20000 };
    char path[4096];
    snprintf(path, sizeof path, "%s/f", getenv("OUTSIDE"));
    int in = open("f", O_CREAT | O_RDWR, 0600), out = open(path, O_CREAT | O_RDWR, 0600);
    double at = now();
    for (int n = 0; n < COUNT; n++) syscall(SYS_getppid);
    printf("%.0f ", (now() - at) / COUNT);
    at = now();
    for (int n = 0; n < COUNT; n++) if (pread(in, data, 4096, 0) < 0) return 1;
    printf("%.0f ", (now() - at) / COUNT);
    at = now();
    for (int n = 0; n < COUNT; n++) if (pwrite(out, data, 4096, 0) < 0) return 1;
    printf("%.0f ", (now() - at) / COUNT);
    at = now();
    for (int n = 0; n < COUNT; n++) if (pwrite(in, data, 4096, 0) < 0) return 1;
    printf("%.0f ", (now() - at) / COUNT);
    at = now();
    for (int n = 0; n < COUNT / 10; n++) {
        close(open("g", O_CREAT | O_RDWR, 0600));
        unlink("g");
    }
    printf("%.0f\n", (now() - at) / (COUNT / 10));
    return 0;
}

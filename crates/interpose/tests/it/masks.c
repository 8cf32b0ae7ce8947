// One thread changes the mask of new files' bits, others that share it make files: each file has
// the mask that held when its making began.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 200 };

static atomic_int began, ended, stops;
static atomic_uint bits;

static unsigned made(void) {
    struct stat stat;
    int file = open("f", O_CREAT | O_EXCL | O_RDWR, 0666);
    if (file < 0 || fstat(file, &stat) || unlink("f") || close(file)) abort();
    return stat.st_mode & 0777;
}

static void *makes(void *unused) {
    while (!atomic_load(&stops)) {
        atomic_fetch_add(&began, 1);
        unsigned got = made();
        atomic_store(&bits, got);
        atomic_fetch_add(&ended, 1);
    }
    return unused;
}

// Between two changes this thread makes no call that is told: the kernel may be at the first still
// while the other makes a file.
static int beside(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, makes, NULL)) return 2;
    int wrong = 0;
    for (int n = 0; n < ROUNDS; n++) {
        unsigned mask = n * 5 % 64;
        umask(mask);
        // One that begins from now on, and the next, which may have been told the same.
        int at = atomic_load(&began);
        while (atomic_load(&ended) < at + 2) usleep(1);
        wrong += atomic_load(&bits) != (0666 & ~mask);
    }
    atomic_store(&stops, 1);
    pthread_join(thread, NULL);
    return wrong > 0;
}

static int after_each_other(void) {
    for (int n = 0; n < ROUNDS; n++) {
        unsigned mask = n * 5 % 64;
        umask(mask);
        if (made() != (0666 & ~mask) || made() != (0666 & ~mask)) return 1;
    }
    return 0;
}

// A child has its parent's, and changes its own.
static int child(void) {
    umask(022);
    made();
    if (fork() == 0) {
        if (made() != 0644) _exit(1);
        umask(077);
        _exit(made() != 0600);
    }
    int status;
    wait(&status);
    return status != 0 || made() != 0644;
}

// A thread executes this program anew: it has the process' number from then on, and its own mask.
static void *executes(void *program) {
    umask(027);
    if (made() != 0640) abort();
    execl(program, program, "executed", NULL);
    abort();
}

static int by_a_thread(char *program) {
    pthread_t thread;
    umask(077);
    if (made() != 0600 || pthread_create(&thread, NULL, executes, program)) return 2;
    pthread_join(thread, NULL);
    return 2;
}

int main(int count, char **arguments) {
    if (!strcmp(arguments[1], "by_a_thread")) return by_a_thread(arguments[0]);
    if (!strcmp(arguments[1], "executed")) return made() != 0640 || after_each_other();
    if (!strcmp(arguments[1], "beside")) return beside();
    if (!strcmp(arguments[1], "child")) return child();
    return after_each_other();
}

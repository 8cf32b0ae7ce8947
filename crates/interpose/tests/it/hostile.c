/* What a program may do that wants to hurt who supervises it. The argument says what. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(it) do { if (!(it)) { printf("line %d: errno %d\n", __LINE__, errno); exit(1); } } while (0)
#define FAILS(it, error) CHECK((it) == -1 && errno == (error))

/* Addresses, lengths and descriptors that are none. */
static void addresses(void) {
    int fd = open("a", O_CREAT | O_RDWR, 0600);
    void *none = (void *)0x10, *kernel = (void *)0xffffffff80000000;
    CHECK(fd >= 0);
    FAILS(write(fd, none, 10), EFAULT);
    FAILS(write(fd, kernel, 10), EFAULT);
    FAILS(write(-1, none, 10), EBADF);
    FAILS(write(1000000, none, 10), EBADF);
    CHECK(write(fd, none, 0) == 0);
    FAILS(syscall(SYS_writev, fd, none, 3), EFAULT);
    FAILS(syscall(SYS_writev, fd, none, 5000), EINVAL);
    FAILS(syscall(SYS_writev, fd, none, -1), EINVAL);
    FAILS(syscall(SYS_unlinkat, AT_FDCWD, none, 0), EFAULT);
    FAILS(syscall(SYS_openat2, AT_FDCWD, "b", none, 24), EFAULT);
    FAILS(syscall(SYS_ftruncate, fd, -1L), EINVAL);
    FAILS(syscall(SYS_fallocate, fd, 0, -1L, 10L), EINVAL);
    FAILS(syscall(SYS_fallocate, fd, 0, 0x7fffffffffffffffL, 10L), EFBIG);
    FAILS(syscall(SYS_pwrite64, fd, "x", 1L, -1L), EINVAL);
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(pages + 4096, 4096) == 0);
    memset(pages, 'y', 4096);
    /* What can be read is written, as the kernel does. */
    CHECK(write(fd, pages + 4090, 100) == 6);
    CHECK(write(fd, pages, 1L << 40) == 4096);
    struct iovec parts[2] = {{"ab", 2}, {none, 5}};
    CHECK(writev(fd, parts, 2) == 2);
    memcpy(pages + 4092, "path", 4);
    FAILS(open(pages + 4092, O_CREAT | O_RDWR, 0600), EFAULT);
    char *path = malloc(10000);
    memset(path, 'p', 9999);
    path[9999] = 0;
    FAILS(open(path, O_CREAT | O_RDWR, 0600), ENAMETOOLONG);
    path[300] = 0;
    FAILS(mkdir(path, 0700), ENAMETOOLONG);
}

static void *writes(void *name) {
    int fd = open(name, O_CREAT | O_APPEND | O_WRONLY, 0600);
    for (;;) CHECK(write(fd, "0123456789", 10) == 10);
}

/* Children are killed in the middle of calls, threads end with their process. */
static void deaths(void) {
    char name[20];
    for (int n = 0; n < 60; n++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            pthread_t thread;
            sprintf(name, "t%d", n % 5);
            pthread_create(&thread, 0, writes, name);
            sprintf(name + 10, "f%d", n % 3);
            writes(name + 10);
        }
        usleep(n * 50);
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
    }
}

/* Signals do not make a call happen twice. */
static void nothing(int signal) { (void)signal; }
static void signals(void) {
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        for (;;) kill(parent, SIGUSR1);
    }
    int fd = open("counted", O_CREAT | O_WRONLY | O_APPEND, 0600);
    for (int n = 0; n < 3000; n++) CHECK(write(fd, "x", 1) == 1);
    CHECK(lseek(fd, 0, SEEK_END) == 3000);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
}

/* Everything closed, no room for descriptors, and still something to do. */
static void closed(void) {
    for (int n = 0; n < 1024; n++) close(n);
    for (int n = 0; n < 100; n++) CHECK(open("many", O_CREAT | O_RDWR, 0600) == n);
    while (open("many", O_CREAT | O_RDWR, 0600) >= 0) {}
    CHECK(errno == EMFILE);
    CHECK(mkdir("made", 0700) == 0);
    CHECK(daemon(1, 1) == 0);
    usleep(20000);
    CHECK(mkdir("later", 0700) == 0);
}

/* Files without a name whose numbers the kernel could give away. */
static void nameless(void) {
    int kept = open("kept", O_CREAT | O_RDWR, 0600);
    unlink("kept");
    for (int n = 0; n < 900; n++) {
        int fd = open("gone", O_CREAT | O_RDWR, 0600);
        CHECK(write(fd, "x", 1) == 1 && unlink("gone") == 0 && close(fd) == 0);
        CHECK(write(kept, "kept", 4) == 4);
        char *path = getenv("OUTSIDE");
        CHECK(chdir(path) == 0);
        fd = open("other", O_CREAT | O_RDWR | O_EXCL, 0600);
        CHECK(write(fd, "not told", 8) == 8 && unlink("other") == 0 && close(fd) == 0);
        CHECK(chdir("../mapped") == 0);
    }
}

/* What would go past the supervisor. */
static void past(void) {
    FAILS(syscall(SYS_io_uring_setup, 8, 0), ENOSYS);
    FAILS(syscall(SYS_io_setup, 8, 0), ENOSYS);
    FAILS(syscall(SYS_io_setup, 8, 0), ENOSYS);
    FAILS(syscall(SYS_userfaultfd, 1), ENOSYS);
    FAILS(ioctl(0, 0xaa00, 0), EPERM);
    FAILS(chroot("."), EPERM);
    FAILS(syscall(SYS_write | 0x40000000, 1, "x", 1), ENOSYS);
    pid_t child = fork();
    if (child == 0) {
        /* mkdir of 32-bit programs. */
        int result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(39), "b"("none"), "c"(0700));
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

int main(int argc, char **argv) {
    (void)argc;
    if (!strcmp(argv[1], "addresses")) addresses();
    if (!strcmp(argv[1], "deaths")) deaths();
    if (!strcmp(argv[1], "signals")) signals();
    if (!strcmp(argv[1], "closed")) closed();
    if (!strcmp(argv[1], "nameless")) nameless();
    if (!strcmp(argv[1], "past")) past();
    return 0;
}

/* Random calls on a few names of the folder that it is in, by their numbers; what each gave is
 * printed at the end, so that two runs can be compared. Arguments: seed, how many. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t state;
static unsigned pick(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % n;
}

static const char *names[] = {
    "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "./a", "d/../b", "d/", "a/", "s", "t", "s/a", ".", "..", "",
    "d/e/../../c", "none/a",
};
/* What leads out of the folder is another test's. */
static const char *inside(const char *name) { return strcmp(name, "..") && strcmp(name, ".") ? name : "a"; }
static const char *name(void) { return names[pick(sizeof names / sizeof *names)]; }

static int flags(void) {
    static const int access[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
    static const int more[] = {O_CREAT, O_TRUNC, O_EXCL, O_APPEND, O_NOFOLLOW, O_DIRECTORY, O_SYNC, O_DSYNC, O_CLOEXEC, O_CREAT, O_CREAT, O_PATH};
    int out = access[pick(4)];
    for (unsigned n = pick(4); n > 0; n--) out |= more[pick(12)];
    return out;
}

static unsigned what;
static char data[20000];
static long one(int *fds) {
    int slot = pick(6), fd = fds[slot], at = pick(3) ? AT_FDCWD : fds[pick(6)];
    off_t offset = pick(4) ? pick(9000) : pick(40000);
    size_t len = pick(3) ? pick(600) : pick(20000);
    struct iovec parts[3] = {{data + 7, pick(50)}, {data + 99, pick(5000)}, {data, pick(9)}};
    mode_t mode = pick(01000);
    memset(data, 'a' + pick(26), sizeof data);
    switch (what = pick(34)) {
    case 0: case 1: case 2: case 3: {
        long got = syscall(SYS_openat, at, inside(name()), flags(), mode);
        if (got >= 0) {
            if (fd >= 0) close(fd);
            fds[slot] = got;
        }
        return got;
    }
    case 4: {
        struct open_how how = {.flags = O_CREAT | O_RDWR, .mode = mode};
        long got = syscall(SYS_openat2, at, inside(name()), &how, sizeof how);
        if (got >= 0) {
            if (fd >= 0) close(fd);
            fds[slot] = got;
        }
        return got;
    }
    case 5: case 6: return syscall(SYS_write, fd, data, len);
    case 7: return syscall(SYS_pwrite64, fd, data, len, pick(20) ? offset : -3);
    case 8: return syscall(SYS_writev, fd, parts, pick(4));
    case 9: {
        static const int ways[] = {0, 0, 0x10 /* append */, 0x20 /* do not append */};
        return syscall(SYS_pwritev2, fd, parts, 3, pick(5) ? offset : -1L, 0, ways[pick(4)]);
    }
    case 10: return syscall(SYS_pwritev2, fd, parts, 2, -1L, -1L, pick(3) ? 0 : 2 /* dsync */);
    case 11: return syscall(SYS_ftruncate, fd, offset);
    case 12: return syscall(SYS_truncate, name(), pick(9) ? offset : -1);
    case 13: {
        static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
        return syscall(SYS_fallocate, fd, modes[pick(3)], offset, len);
    }
    case 14: return syscall(SYS_lseek, fd, offset, pick(3));
    case 15: return syscall(SYS_renameat2, at, name(), AT_FDCWD, name(), 0);
    case 16: return syscall(SYS_renameat2, AT_FDCWD, name(), at, name(), pick(4));
    case 17: return syscall(SYS_linkat, at, name(), AT_FDCWD, name(), pick(2) ? AT_SYMLINK_FOLLOW : 0);
    case 18: return syscall(SYS_symlinkat, inside(name()), AT_FDCWD, pick(2) ? "s" : "t");
    case 19: return syscall(SYS_unlinkat, at, name(), 0);
    case 20: return syscall(SYS_unlinkat, AT_FDCWD, name(), AT_REMOVEDIR);
    case 21: case 22: return syscall(SYS_mkdirat, at, name(), 0700 | mode);
    case 23: return syscall(SYS_fchmodat, at, name(), 0600 | mode);
    case 24: return syscall(SYS_fchmod, fd, 0600 | mode);
    case 25: return syscall(SYS_fsync, fd);
    case 26: return syscall(SYS_fdatasync, fd);
    case 27: return syscall(SYS_mknodat, at, name(), pick(2) ? S_IFREG | mode : mode, 0);
    case 28: return umask(pick(3) ? 022 : 077);
    case 29: {
        char byte = 0;
        long got = syscall(SYS_pread64, fd, &byte, 1, offset);
        return got * 1000 + byte;
    }
    case 30: {
        char link[40];
        sprintf(link, "/proc/self/fd/%d", fd);
        int again = open(link, O_RDWR | (pick(3) ? 0 : O_TRUNC));
        long got = again < 0 ? -1 : write(again, data, len % 100);
        int error = errno;
        if (again >= 0) close(again);
        errno = error;
        return got;
    }
    case 31: {
        struct stat stat;
        if (fstat(fd, &stat) || !S_ISREG(stat.st_mode) || stat.st_size < 10) return -2;
        char *map = mmap(0, stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) return -1;
        map[pick(stat.st_size)] ^= 1;
        if (pick(2)) msync(map, stat.st_size, MS_SYNC);
        return munmap(map, stat.st_size);
    }
    case 32: {
        pid_t child = pick(2) ? fork() : vfork();
        if (child == 0) {
            syscall(SYS_write, fd, data, len % 50);
            _exit(7);
        }
        int status;
        waitpid(child, &status, 0);
        return status;
    }
    default: {
        long got = dup(fd);
        if (got >= 0) close(got);
        return got;
    }
    }
}

int main(int argc, char **argv) {
    state = strtoull(argv[1], 0, 10) * 0x9e3779b97f4a7c15 + 1;
    int count = atoi(argv[2]), fds[6] = {-1, -1, -1, -1, -1, -1};
    long *results = calloc(count, 3 * sizeof(long));
    for (int n = 0; n < count; n++) {
        errno = 0;
        results[3 * n] = one(fds);
        results[3 * n + 1] = errno;
        results[3 * n + 2] = what;
    }
    for (int n = 0; n < count; n++) {
        long *it = results + 3 * n;
        printf("call %d (case %ld): %ld, error %ld\n", n, it[2], it[0], it[1]);
    }
    return 0;
}

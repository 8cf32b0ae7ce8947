// Syncs a mapped file, does one thing that others can see, and goes on. Standard input is a
// socket, standard output a pipe; $OUTSIDE has the file `old`.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char old[4096], new[4096];
static int out, locked, folder, file;

static void act(const char *what) {
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    loff_t at = 0;
    if (!strcmp(what, "write")) write(1, "x", 1);
    if (!strcmp(what, "writev")) writev(1, &piece, 1);
    if (!strcmp(what, "send")) send(0, "x", 1, 0);
    if (!strcmp(what, "sendmsg")) sendmsg(0, &message, 0);
    if (!strcmp(what, "shutdown")) shutdown(0, SHUT_RDWR);
    if (!strcmp(what, "close")) close(1);
    if (!strcmp(what, "close_range")) syscall(SYS_close_range, 1, 1, 0);
    if (!strcmp(what, "dup2")) dup2(2, 1);
    if (!strcmp(what, "sendfile")) sendfile(1, file, &at, 1);
    if (!strcmp(what, "splice")) splice(file, &at, 1, 0, 1, 0);
    if (!strcmp(what, "sendfile_mapped")) sendfile(1, out, &at, 1);
    if (!strcmp(what, "sendfile_socket")) sendfile(0, out, &at, 1);
    if (!strcmp(what, "splice_mapped")) splice(out, &at, 1, 0, 1, 0);
    if (!strcmp(what, "vmsplice")) vmsplice(1, &piece, 1, 0);
    if (!strcmp(what, "pwrite")) pwrite(file, "x", 1, 0);
    if (!strcmp(what, "copy")) copy_file_range(file, &at, file, &(loff_t){1}, 1, 0);
    if (!strcmp(what, "ftruncate")) ftruncate(file, 1);
    if (!strcmp(what, "fallocate")) fallocate(file, 0, 0, 100);
    if (!strcmp(what, "fchmod")) fchmod(file, 0600);
    if (!strcmp(what, "truncate")) truncate(old, 1);
    if (!strcmp(what, "chmod")) chmod(old, 0600);
    if (!strcmp(what, "utimens")) utimensat(AT_FDCWD, old, (struct timespec[]){{1, 0}, {1, 0}}, 0);
    if (!strcmp(what, "creat")) open(new, O_CREAT | O_RDWR, 0644);
    if (!strcmp(what, "tmpfile")) open(old, O_TRUNC | O_RDWR);
    if (!strcmp(what, "mkdir")) mkdir(new, 0755);
    if (!strcmp(what, "mkfifo")) mkfifo(new, 0644);
    if (!strcmp(what, "symlink")) symlink("x", new);
    if (!strcmp(what, "link")) link(old, new);
    if (!strcmp(what, "rename")) rename(old, new);
    if (!strcmp(what, "unlink")) unlink(old);
    if (!strcmp(what, "setxattr")) syscall(SYS_setxattr, old, "user.x", "y", 1, 0);
    if (!strcmp(what, "bind")) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        strcpy(name.sun_path, "../outside/new");
        bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name);
    }
    if (!strcmp(what, "open_to_write")) open(old, O_WRONLY);
    if (!strcmp(what, "timer")) {
        struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
        timerfd_settime(atoi(getenv("TIMER")), 0, &soon, NULL);
    }
    if (!strcmp(what, "epoll")) {
        struct epoll_event event = {.events = EPOLLOUT};
        epoll_ctl(atoi(getenv("EPOLL")), EPOLL_CTL_ADD, 1, &event);
    }
    if (!strcmp(what, "open_fifo")) open(getenv("FIFO"), O_WRONLY | O_NONBLOCK);
    if (!strcmp(what, "setsockopt")) setsockopt(0, SOL_SOCKET, SO_SNDBUF, &(int){4096}, 4);
    if (!strcmp(what, "flags")) fcntl(0, F_SETFL, O_NONBLOCK);
    if (!strcmp(what, "nonblock")) ioctl(0, FIONBIO, &(int){1});
    if (!strcmp(what, "unlock")) flock(locked, LOCK_UN);
    if (!strcmp(what, "close_lock")) close(locked);
    if (!strcmp(what, "close_folder_lock")) close(folder);
    if (!strcmp(what, "kill")) kill(atoi(getenv("VICTIM")), SIGKILL);
    if (!strcmp(what, "sigqueue")) sigqueue(atoi(getenv("VICTIM")), SIGKILL, (union sigval){0});
    if (!strcmp(what, "exit")) _exit(0);
    if (!strcmp(what, "exit_thread")) syscall(SYS_exit, 0);
    if (!strcmp(what, "exec")) execl("/bin/true", "true", NULL);
    if (!strcmp(what, "child")) {
        // What children do is seen, too.
        if (fork() == 0) {
            write(1, "x", 1);
            _exit(0);
        }
        wait(NULL);
    }
    if (!strcmp(what, "memory")) {
        char *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
        mprotect(shared, 4096, PROT_READ | PROT_WRITE);
        shared[0] = 'x';
    }
    if (!strcmp(what, "segment")) shmat(shmget(IPC_PRIVATE, 4096, 0600 | IPC_CREAT), NULL, 0);
    if (!strcmp(what, "nothing")) {
        // Nobody sees it.
        int ends[2], status;
        char byte;
        pipe(ends);
        struct stat stat;
        fstat(0, &stat);
        stat.st_size += lseek(file, 0, SEEK_END) + read(file, &byte, 1) + getpid();
        ioctl(0, FIONREAD, &status);
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        close(open("f", O_RDWR));
        fchown(out, getuid(), getgid());
        futimens(out, NULL);
        chown("f", getuid(), getgid());
        signal(SIGUSR1, SIG_IGN);
        usleep(1000);
        close(file);
    }
}

int main(int count, char **arguments) {
    snprintf(old, sizeof old, "%s/old", getenv("OUTSIDE"));
    snprintf(new, sizeof new, "%s/new", getenv("OUTSIDE"));
    if (fcntl(1, F_SETFD, FD_CLOEXEC)) return 1;
    out = open("f", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    locked = open(old, O_RDONLY | O_CLOEXEC);
    file = open(old, O_RDWR | O_CLOEXEC);
    folder = open(getenv("OUTSIDE"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (flock(locked, LOCK_EX) || flock(folder, LOCK_EX)) return 1;
    if (pwrite(out, "data", 4, 0) != 4 || fdatasync(out)) return 1;
    act(arguments[1]);
    mkdir("after", 0755);
    return 0;
}

/* A program whose stretches after its I/O have known lengths: `spin(n)` is 2 n instructions. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void spin(long n)
{
#if defined __x86_64__
   __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(n));
#else
   __asm__ volatile("1: subs %0, %0, #1\n b.ne 1b" : "+r"(n));
#endif
}

static int fd;
static char page[4096];

static void* other(void* arg)
{
   /* Its stretch is its own, whatever the first thread does meanwhile. */
   static char mine[64];
   pwrite(fd, mine, sizeof mine, 65536);
   spin(50000);
   fdatasync(fd);
   return arg;
}

int main(int argc, char** argv)
{
   volatile char sum = 0;
   fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
   volatile char* shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
   /* After a write it goes on through calls without effect, and stops at one with. */
   for (int n = 0; n < 10; n++) {
      pwrite(fd, page, sizeof page, 0);
      spin(1000);
      getpid();
      spin(1000);
      kill(getpid(), 0);
   }
   /* After a read, at the first load from what was read: of the second piece here. */
   for (int n = 0; n < 10; n++) {
      struct iovec pieces[2] = { { page, 64 }, { page + 2048, 64 } };
      preadv(fd, pieces, 2, 0);
      sum += page[1024];
      spin(3000);
      sum += page[2048 + 63];
   }
   /* After a flush, at a store that others see. */
   for (int n = 0; n < 5; n++) {
      fsync(fd);
      spin(7000);
      shared[n] = 1;
   }
   /* A read between is no end of what goes on after a write. */
   for (int n = 0; n < 4; n++) {
      pwritev(fd, &(struct iovec){ page, 512 }, 1, 8192);
      spin(2000);
      pread(fd, page, 16, 0);
      sum += page[0];
      spin(2000);
      lseek(fd, 0, SEEK_SET);
   }
   /* What is no file is no I/O, but an effect. */
   int ends[2];
   pipe(ends);
   write(ends[1], page, 1);
   spin(10);
   read(ends[0], page, 1);
   pthread_t thread;
   pthread_create(&thread, 0, other, 0);
   pthread_join(thread, 0);
   if (fork() == 0) {
      pwritev2(fd, &(struct iovec){ page, 16 }, 1, 0, 0);
      spin(500);
      execl("/bin/true", "true", (char*)0);
   }
   int status;
   wait(&status);
   return sum & 0;
}

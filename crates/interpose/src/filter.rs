//! The filter that the kernel runs at each system call of the program: which go to the supervisor.
//! What it lets pass costs the program nothing that can be measured.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_USER_NOTIF, sock_filter,
};

use crate::harmless;
use crate::watcher::Wants;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// The ioctls `FS_IOC_RESVSP`, `UNRESVSP`, both with 64 bits, and `ZERO_RANGE`, which any file
/// system has. Their numbers are those of no other call.
const SPACE: [u32; 5] = [0x4030_5828, 0x4030_5829, 0x4030_582a, 0x4030_582b, 0x4030_5839];

/// The ioctl of `/dev/userfaultfd` that does what the call of that name does.
const USERFAULTFD: u32 = 0xaa00;

/// What `fcntl` does that nobody sees: new descriptors and their flags, looking, and locks of
/// records, which databases take at each transaction.
const QUIET_FCNTL: [i32; 10] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
];

/// The ioctls `TCGETS`, `TIOCGWINSZ`, `FIONREAD`, `FIONCLEX` and `FIOCLEX`, which look, or change
/// the program's own descriptors. Their numbers are those of no call.
const QUIET: [u32; 5] = [0x5401, 0x5413, 0x541b, 0x5450, 0x5451];

/// From this number on calls of x86-64 are those with short pointers.
#[cfg(target_arch = "x86_64")]
const SHORT_POINTERS: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`, of little-endian machines.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

/// Flags of an open that changes something.
const CHANGES: u32 =
    (libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn jump(test: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | test | BPF_K) as u16, jt, jf, k }
}

const fn load(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

const fn answer(action: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, action)
}

/// Calls that always go to the supervisor.
fn told(wants: Wants) -> Vec<i64> {
    let mut calls = system! {
        SYS_openat2 SYS_write SYS_pwrite64 SYS_writev SYS_pwritev SYS_pwritev2 SYS_fsync
        SYS_fdatasync SYS_sync_file_range SYS_sync SYS_syncfs SYS_msync SYS_munmap SYS_mremap
        SYS_exit_group SYS_ftruncate SYS_truncate SYS_fallocate SYS_renameat SYS_renameat2
        SYS_linkat SYS_symlinkat SYS_unlinkat SYS_mkdirat SYS_mknodat SYS_fchmod SYS_fchmodat
        SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_umask SYS_execve SYS_execveat
        SYS_copy_file_range SYS_sendfile SYS_splice SYS_setxattr SYS_lsetxattr SYS_fsetxattr
        SYS_io_uring_setup SYS_io_setup SYS_userfaultfd
    }
    .to_vec();
    #[cfg(target_arch = "x86_64")]
    calls.extend(system! {
        SYS_creat SYS_rename SYS_link SYS_symlink SYS_unlink SYS_rmdir SYS_mkdir SYS_mknod
        SYS_chmod SYS_chown SYS_lchown
    });
    if wants.outputs {
        calls.extend([libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg]);
    }
    if wants.room {
        calls.extend([libc::SYS_statfs, libc::SYS_fstatfs]);
    }
    if wants.reads {
        calls.extend(system! {
            SYS_read SYS_pread64 SYS_readv SYS_preadv SYS_preadv2
        });
    }
    calls
}

/// The filter's program. A call of another architecture kills the process: its numbers mean
/// other calls, which would go past the supervisor. `shares`: see [`harmless::calls`].
pub(crate) fn program(wants: Wants, shares: bool) -> Vec<sock_filter> {
    let notify = || answer(SECCOMP_RET_USER_NOTIF);
    let allow = || answer(SECCOMP_RET_ALLOW);
    let refuse = |errno: i32| answer(SECCOMP_RET_ERRNO | errno as u32);
    let mut out = vec![
        load(MACHINE),
        jump(BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    out.extend([jump(libc::BPF_JGE, SHORT_POINTERS, 0, 1), refuse(libc::ENOSYS)]);
    for call in told(wants) {
        out.extend([jump(BPF_JEQ, call as u32, 0, 1), notify()]);
    }
    // A root, or mounts, of its own would make the program's paths mean other files than ours do.
    let others = [
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_move_mount,
        libc::SYS_setns,
        libc::SYS_open_by_handle_at,
        // It makes memory be another part of a file.
        libc::SYS_remap_file_pages,
    ];
    for call in others {
        out.extend([jump(BPF_JEQ, call as u32, 0, 1), refuse(libc::EPERM)]);
    }
    let opens = [(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    let opens = [opens[0], (libc::SYS_open, 1)];
    for (call, flags) in opens {
        out.extend([
            jump(BPF_JEQ, call as u32, 0, 4),
            load(argument(flags)),
            // The other end of a pipe sees who opens it.
            match wants.effects {
                true => jump(BPF_JGE, 0, 0, 1),
                false => jump(BPF_JSET, CHANGES, 0, 1),
            },
            notify(),
            allow(),
        ]);
    }
    out.extend([
        jump(BPF_JEQ, libc::SYS_prctl as u32, 0, 6),
        load(argument(0)),
        jump(BPF_JEQ, libc::PR_SET_DUMPABLE as u32, 0, 3),
        load(argument(1)),
        jump(BPF_JEQ, 0, 0, 1),
        notify(),
        allow(),
    ]);
    for call in [libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        out.extend([
            jump(BPF_JEQ, call as u32, 0, 4),
            load(argument(2)),
            jump(BPF_JSET, libc::PROT_WRITE as u32, 0, 1),
            notify(),
            allow(),
        ]);
    }
    out.extend([
        // What cannot be written now may be later.
        jump(BPF_JEQ, libc::SYS_mmap as u32, 0, 5),
        load(argument(3)),
        jump(BPF_JSET, libc::MAP_ANONYMOUS as u32, 2, 0),
        jump(BPF_JSET, libc::MAP_SHARED as u32, 0, 1),
        notify(),
        allow(),
        jump(BPF_JEQ, libc::SYS_ioctl as u32, 0, 4),
        load(argument(1)),
        jump(BPF_JEQ, libc::FICLONE as u32, 1, 0),
        jump(BPF_JEQ, libc::FICLONERANGE as u32, 0, 1),
        notify(),
    ]);
    // What came before fallocate, and does the same untold. The request is still loaded.
    for request in SPACE {
        out.extend([jump(BPF_JEQ, request, 0, 1), refuse(libc::EOPNOTSUPP)]);
    }
    out.extend([jump(BPF_JEQ, USERFAULTFD, 0, 1), refuse(libc::EPERM)]);
    if !wants.effects {
        out.push(allow());
        return out;
    }
    out.extend([load(NUMBER), jump(BPF_JEQ, libc::SYS_ioctl as u32, 0, 1), load(argument(1))]);
    let quiet = harmless::calls(shares).into_iter().map(|call| call as u32).chain(QUIET);
    for number in quiet {
        out.extend([jump(BPF_JEQ, number, 0, 1), allow()]);
    }
    out.extend([jump(BPF_JEQ, libc::SYS_fcntl as u32, 1, 0), notify(), load(argument(1))]);
    for what in QUIET_FCNTL {
        out.extend([jump(BPF_JEQ, what as u32, 0, 1), allow()]);
    }
    out.push(notify());
    out
}

//! What system calls are called.

/// Pairs of a call's number and its name.
macro_rules! calls {
    ($($name:ident)*) => {
        &[$((libc::$name, strip(stringify!($name)))),*]
    };
}

/// The name without what libc puts before it.
const fn strip(name: &'static str) -> &'static str {
    name.split_at(4).1
}

/// Those that programs stop at. What is missing here is told by its number.
const CALLS: &[(i64, &str)] = calls! {
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
    SYS_preadv2 SYS_pwritev2 SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range
    SYS_msync SYS_openat SYS_openat2 SYS_close SYS_lseek SYS_fcntl SYS_flock SYS_ftruncate
    SYS_truncate SYS_fallocate SYS_fadvise64 SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat
    SYS_unlinkat SYS_mkdirat SYS_mknodat SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat
    SYS_utimensat SYS_chdir SYS_fchdir SYS_umask SYS_copy_file_range SYS_sendfile SYS_splice
    SYS_tee SYS_ioctl SYS_dup SYS_dup3 SYS_pipe2 SYS_socket SYS_bind SYS_listen SYS_accept
    SYS_accept4 SYS_connect SYS_shutdown SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg
    SYS_sendmmsg SYS_recvmmsg SYS_setsockopt SYS_getsockopt SYS_epoll_ctl SYS_epoll_create1
    SYS_eventfd2 SYS_futex SYS_clone SYS_clone3 SYS_execve SYS_execveat SYS_exit SYS_exit_group
    SYS_wait4 SYS_waitid SYS_kill SYS_tkill SYS_tgkill SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_nanosleep SYS_clock_nanosleep SYS_timer_settime SYS_setitimer SYS_prctl SYS_prlimit64
    SYS_setrlimit SYS_io_setup SYS_io_submit SYS_io_getevents SYS_io_uring_setup
    SYS_io_uring_enter SYS_shmget SYS_shmat SYS_semop SYS_msgsnd SYS_mlock SYS_membarrier
};

/// Those that only older platforms have.
#[cfg(target_arch = "x86_64")]
const OLD: &[(i64, &str)] = calls! {
    SYS_open SYS_creat SYS_rename SYS_link SYS_symlink SYS_unlink SYS_mkdir SYS_rmdir SYS_mknod
    SYS_chmod SYS_chown SYS_utime SYS_utimes SYS_dup2 SYS_pipe SYS_fork SYS_vfork SYS_alarm
    SYS_pause SYS_eventfd SYS_epoll_create
};
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(i64, &str)] = &[];

/// The name of the call of that number.
pub fn name(call: i64) -> String {
    let known = CALLS.iter().chain(OLD).find(|known| known.0 == call);
    known.map_or_else(|| format!("call {call}"), |known| known.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_names_of_the_system() {
        assert_eq!(name(libc::SYS_fsync), "fsync");
        assert_eq!(name(libc::SYS_exit_group), "exit_group");
        assert_eq!(name(99_999), "call 99999");
    }
}

//! Calls that nobody outside the program can see, for filters that tell of effects. What is not
//! here is told, so that a call that is new or was forgotten is held for nothing and not let go
//! too early.

/// In three kinds: what only looks, what changes the program's own memory, threads, signals and
/// descriptors, and what waits. Where the program `shares` timers and the like with who started it,
/// that one sees what it does with them.
pub(crate) fn calls(shares: bool) -> Vec<i64> {
    let mut calls = LOOKING.to_vec();
    calls.extend_from_slice(OWN);
    if !shares {
        calls.extend_from_slice(WATCHING);
    }
    calls.extend_from_slice(WAITING);
    #[cfg(target_arch = "x86_64")]
    calls.extend_from_slice(OLDER);
    calls
}

const LOOKING: &[i64] = &system! {
    SYS_read SYS_pread64 SYS_readv SYS_preadv SYS_preadv2 SYS_recvfrom SYS_recvmsg SYS_recvmmsg
    SYS_lseek SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat
    SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_getxattr SYS_lgetxattr
    SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_readahead SYS_fadvise64
    SYS_getsockname SYS_getpeername SYS_getsockopt SYS_getpid SYS_gettid SYS_getppid SYS_getpgid
    SYS_getsid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getresuid
    SYS_getresgid SYS_getrlimit SYS_getrusage SYS_getpriority SYS_getcpu SYS_getrandom
    SYS_gettimeofday SYS_clock_gettime SYS_clock_getres SYS_times SYS_uname SYS_sysinfo SYS_capget
    SYS_get_robust_list SYS_get_mempolicy SYS_sched_getaffinity SYS_sched_getattr
    SYS_sched_getparam SYS_sched_getscheduler SYS_sched_get_priority_max
    SYS_sched_get_priority_min
};

const OWN: &[i64] = &system! {
    SYS_brk SYS_mprotect SYS_mremap SYS_madvise SYS_mincore SYS_mlock SYS_mlock2 SYS_munlock
    SYS_mlockall SYS_munlockall SYS_membarrier SYS_memfd_create SYS_mbind SYS_set_mempolicy
    SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_rseq SYS_set_robust_list
    SYS_set_tid_address SYS_clone SYS_clone3 SYS_prctl SYS_seccomp SYS_setrlimit SYS_chdir
    SYS_fchdir SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending
    SYS_sigaltstack SYS_restart_syscall SYS_getitimer SYS_setitimer SYS_timer_create
    SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_timerfd_create
    SYS_timerfd_gettime SYS_signalfd4 SYS_eventfd2 SYS_epoll_create1 SYS_inotify_init1
    SYS_pidfd_open SYS_pipe2 SYS_socket SYS_socketpair SYS_accept SYS_accept4 SYS_dup
};

const WATCHING: &[i64] = &system! {
    SYS_timerfd_settime SYS_epoll_ctl SYS_inotify_add_watch SYS_inotify_rm_watch
};

const WAITING: &[i64] = &system! {
    SYS_futex SYS_wait4 SYS_waitid SYS_nanosleep SYS_clock_nanosleep SYS_sched_yield SYS_ppoll
    SYS_pselect6 SYS_epoll_pwait SYS_epoll_pwait2 SYS_rt_sigsuspend SYS_rt_sigtimedwait
};

/// Those that newer processors do without.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &system! {
    SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_getpgrp SYS_time SYS_arch_prctl
    SYS_fork SYS_vfork SYS_alarm SYS_signalfd SYS_eventfd SYS_epoll_create SYS_inotify_init
    SYS_pipe SYS_poll SYS_select SYS_epoll_wait SYS_pause
};

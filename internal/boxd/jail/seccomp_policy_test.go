package jail

// The policy, as lists of names. A call that no list names gets ENOSYS, as from a
// kernel without it. So do the calls of later kernels: programs fall back to what they
// did before. Names that an architecture does not have are left out.

// allowed calls pass whatever their arguments are.
var allowed = []string{
	// files
	"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2", "lseek", "close", "close_range",
	"stat", "fstat", "lstat", "newfstatat", "fstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2",
	"getdents", "getdents64", "getcwd", "chdir", "fchdir", "readlink", "readlinkat", "rename", "renameat", "renameat2",
	"rmdir", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "truncate", "ftruncate", "fallocate",
	"chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat", "umask",
	"fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "fadvise64", "readahead", "copy_file_range",
	"sendfile", "splice", "tee", "vmsplice", "flock", "fcntl", "dup", "dup2", "dup3", "pipe", "pipe2",
	"setxattr", "lsetxattr", "fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr",
	"removexattr", "lremovexattr", "fremovexattr", "setxattrat", "getxattrat", "listxattrat", "removexattrat",
	// waiting
	"poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2",
	"eventfd", "eventfd2", "signalfd", "signalfd4", "inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	"timerfd_create", "timerfd_settime", "timerfd_gettime", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete",
	"nanosleep", "clock_nanosleep", "alarm", "pause", "getitimer", "setitimer", "restart_syscall",
	"io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents",
	"futex", "futex_waitv", "futex_wake", "futex_wait", "futex_requeue", "get_robust_list", "set_robust_list", "rseq", "membarrier",
	// memory
	"brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "mincore", "msync", "mlock", "mlock2", "mlockall", "munlock", "munlockall",
	"remap_file_pages", "memfd_create", "pkey_mprotect", "pkey_alloc", "pkey_free", "mseal", "map_shadow_stack",
	// processes and signals
	"fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "set_tid_address", "arch_prctl", "prctl", "seccomp",
	"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
	"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal",
	"rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigreturn", "sigaltstack",
	"getpid", "getppid", "gettid", "getpgid", "setpgid", "getpgrp", "getsid", "setsid",
	"getuid", "geteuid", "getgid", "getegid", "getgroups", "getresuid", "getresgid",
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capget", "capset",
	"getpriority", "setpriority", "ioprio_get", "ioprio_set", "sched_yield", "sched_getaffinity", "sched_setaffinity",
	"sched_getparam", "sched_setparam", "sched_getscheduler", "sched_setscheduler", "sched_getattr", "sched_setattr",
	"sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval", "getrlimit", "setrlimit", "getrusage",
	// the machine
	"uname", "sysinfo", "time", "gettimeofday", "clock_gettime", "clock_getres", "times", "getcpu", "getrandom",
	// sockets
	"connect", "bind", "listen", "accept", "accept4", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
	"sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg",
	// between processes: databases use the old ones
	"shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl",
	"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
}

// refused calls answer EPERM whatever their arguments are.
var refused = []string{
	// mounts and roots
	"mount", "umount", "umount2", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick",
	"mount_setattr", "pivot_root", "chroot",
	// other processes, the kernel
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "move_pages", "migrate_pages",
	"bpf", "perf_event_open", "keyctl", "add_key", "request_key", "userfaultfd", "fanotify_init", "fanotify_mark",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// memory of the kernel's descriptor tables, and where memory lies
	"modify_ldt", "mbind", "set_mempolicy", "get_mempolicy", "set_mempolicy_home_node",
	// namespaces
	"setns", "unshare",
	// files by handle, quotas, accounting
	"open_by_handle_at", "name_to_handle_at", "quotactl", "quotactl_fd", "acct", "lookup_dcookie", "nfsservctl",
	// the machine
	"swapon", "swapoff", "reboot", "settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64", "adjtimex", "stime",
	"iopl", "ioperm", "syslog", "sethostname", "setdomainname", "vhangup", "uselib", "sysfs", "_sysctl", "vm86", "vm86old",
}

// absent calls get ENOSYS like unlisted ones; callers fall back to an older call. They
// are named because they were left out on purpose, as are clone3 and openat2, whose
// flags no filter sees.
var absent = []string{
	"memfd_secret", "uretprobe", "uprobe", "file_getattr", "file_setattr", "statmount", "listmount",
	"lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules", "cachestat", "process_mrelease", "ustat",
}

// newCalls are calls that the library's table may lack because they are young or very
// old; from 424 on all architectures number them alike.
var newCalls = map[string]int{
	"pidfd_send_signal": 424, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
	"pidfd_open": 434, "clone3": 435, "close_range": 436, "openat2": 437, "pidfd_getfd": 438, "faccessat2": 439,
	"process_madvise": 440, "epoll_pwait2": 441, "mount_setattr": 442, "quotactl_fd": 443,
	"landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446, "memfd_secret": 447,
	"process_mrelease": 448, "futex_waitv": 449, "set_mempolicy_home_node": 450, "cachestat": 451, "fchmodat2": 452,
	"map_shadow_stack": 453, "futex_wake": 454, "futex_wait": 455, "futex_requeue": 456, "statmount": 457, "listmount": 458,
	"lsm_get_self_attr": 459, "lsm_set_self_attr": 460, "lsm_list_modules": 461, "mseal": 462,
	"setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466, "open_tree_attr": 467,
	"uprobe": 336, "file_getattr": 468, "file_setattr": 469,
}

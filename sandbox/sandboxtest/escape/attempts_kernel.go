package escape

// Attempts that namespaces, capabilities, the system call filter and Landlock refuse. In most controls
// the same system call is made without these protections.

func netAttempts() []attempt {
	const answer = "ok escape-canary-network"
	const nowhereNet = "ENETUNREACH"
	return []attempt{
		{id: "net-loopback", does: "a TCP service of the host on 127.0.0.1", args: []string{"dial", "tcp", "{tcp}"}, want: "ECONNREFUSED", sees: answer},
		{id: "net-loopback-udp", does: "a UDP service of the host on 127.0.0.1", args: []string{"dial", "udp", "{udp}"}, want: "ECONNREFUSED", sees: answer},
		{id: "net-loopback-ipv6", does: "a TCP service of the host on ::1", args: []string{"dial", "tcp", "{tcp6}"}, want: "ECONNREFUSED", sees: answer},
		{id: "net-shell", does: "the same with bash's /dev/tcp", sh: "T={tcp}; exec 3<>/dev/tcp/${T%:*}/${T#*:} && cat <&3", want: "exit 1 .*Connection refused.*", sees: "exit 0 escape-canary-network"},
		{id: "net-link-local", does: "a link-local address", args: []string{"dial", "tcp", "169.254.1.1:80"}, free: []string{"serve", "169.254.1.1:80", "dial", "tcp", "169.254.1.1:80"}, want: nowhereNet, control: inNamespaces, sees: answer},
		{id: "net-metadata", does: "the metadata service of clouds", args: []string{"dial", "tcp", "169.254.169.254:80"}, free: []string{"serve", "169.254.169.254:80", "dial", "tcp", "169.254.169.254:80"}, want: nowhereNet, control: inNamespaces, sees: answer},
		{id: "net-outside", does: "an address of the internet", args: []string{"dial", "tcp", "192.0.2.1:443"}, free: []string{"serve", "192.0.2.1:443", "dial", "tcp", "192.0.2.1:443"}, want: nowhereNet, control: inNamespaces, sees: answer},
		{id: "net-outside-ipv6", does: "an IPv6 address of the internet", args: []string{"dial", "tcp", "[2001:db8::1]:443"}, free: []string{"serve", "[::1]:443", "dial", "tcp", "[::1]:443"}, want: nowhereNet, control: inNamespaces, sees: answer},
		{id: "net-dns", does: "a name server outside", args: []string{"dns", "192.0.2.53:53", "escape.example"}, free: []string{"serve", "192.0.2.53:53", "dns", "192.0.2.53:53", "escape.example"}, want: nowhereNet, control: inNamespaces, sees: answer},
		{id: "net-dns-loopback", does: "the host's stub resolver", args: []string{"dns", "{udp}", "escape.example"}, want: "ECONNREFUSED", sees: answer},
		{id: "net-abstract", does: "an abstract socket of the host", args: []string{"dial", "unix", "{abstract}"}, want: "ECONNREFUSED", sees: answer},
		{id: "net-unix", does: "a socket file of the host that anybody may use", args: []string{"dial", "unix", "{unix}"}, want: "ENOENT", sees: answer},
		{id: "net-control-socket", does: "boxd's own socket by its path on the host", args: []string{"hello", "unix", "{boxd-socket}"}, want: "ENOENT", sees: "ok .*protocol version.*"},
		{id: "net-any-socket", does: "any socket that can be found, boxd's own among them", args: []string{"sockets", "/", "/proc/1/root", "/proc/1/cwd", "@"}, free: []string{"sockets", "{data}", "@escape-"}, want: "failed: none", sees: "ok .*{boxd-socket}.*@escape-.*"},
		{id: "net-other-model", does: "the socket on which another session asks its model", args: []string{"dial", "unix", "/run/holdfast/model.sock"}, want: "ENOENT", control: inOther, sees: answer},
		{id: "net-other-proxy", does: "the proxy to what another session was granted", args: []string{"dial", "tcp", "127.0.0.1:3128"}, want: "ECONNREFUSED", control: inOther, sees: answer},
		{id: "net-raw", does: "a raw IP socket", args: []string{"socket", "2", "3", "1"}, want: "EPERM", control: inNamespaces},
		{id: "net-packet", does: "a packet socket", args: []string{"socket", "17", "3", "0"}, want: "EPERM", control: inNamespaces},
		{id: "net-netlink", does: "a netlink socket of another family (sock_diag)", args: []string{"socket", "16", "3", "4"}, want: "EPERM"},
		{id: "net-netlink-link", does: "change a network device over a route socket", args: []string{"netlink"}, want: "EPERM", control: inNamespaces},
		{id: "net-address", does: "give the loopback device an address", args: []string{"address", "192.0.2.9"}, want: "EPERM", control: inNamespaces},
		{id: "net-mptcp", does: "a Multipath TCP socket, which Landlock's port rules do not see", args: []string{"socket", "2", "1", "262"}, want: "EPROTONOSUPPORT"},
		{id: "net-vsock", does: "a socket to the hypervisor (vsock)", args: []string{"socket", "40", "1", "0"}, want: "EPERM"},
		{id: "net-alg", does: "a socket of the kernel's crypto (AF_ALG)", args: []string{"socket", "38", "5", "0"}, want: "EPERM", lacks: "EAFNOSUPPORT", why: "this kernel is built without AF_ALG"},
		{id: "net-devices", does: "a network device beside loopback", args: []string{"devices"}, want: "failed: none but lo", sees: "ok .*"},
	}
}

func mountAttempts() []attempt {
	const ns = inNamespaces
	return []attempt{
		{id: "mount", does: "mount a tmpfs", args: []string{"mount"}, want: "EPERM", control: ns},
		{id: "mount-umount", does: "take a mount away", args: []string{"umount", "/workspace"}, free: []string{"within", "{root}", "umount", "/workspace"}, want: "EPERM", control: ns},
		{id: "mount-remount", does: "make /usr writable", args: []string{"remount", "/usr"}, free: []string{"within", "{root}", "remount", "/usr"}, want: "EPERM", control: ns},
		{id: "mount-fsopen", does: "open a file system (fsopen)", args: []string{"fsopen"}, want: "EPERM", control: ns},
		{id: "mount-open-tree", does: "clone a tree of mounts (open_tree)", args: []string{"open-tree"}, want: "EPERM", control: ns},
		{id: "mount-setattr", does: "change the attributes of a mount (mount_setattr)", args: []string{"mount-setattr"}, want: "EPERM", control: ns},
		{id: "mount-chroot", does: "chroot", args: []string{"chroot"}, want: "EPERM", control: ns},
		{id: "mount-pivot-root", does: "pivot_root", args: []string{"pivot-root"}, want: "EPERM", control: ns},
		{id: "mount-mknod", does: "make a device node", args: []string{"mknod", "/workspace/null"}, free: []string{"within", "{root}", "mknod", "/workspace/null"}, want: "EPERM", control: asRoot},
		{id: "mount-user-namespace", does: "a user namespace (unshare)", sh: "unshare -U true", want: "exit 1 .*Operation not permitted"},
		{id: "mount-user-namespaces-left", does: "find that the box may have user namespaces", sh: "cat /proc/sys/user/max_user_namespaces", want: "exit 0 0", sees: "exit 0 [1-9].*"},
		{id: "mount-net-namespace", does: "a network namespace (unshare)", args: []string{"unshare", "1073741824"}, want: "EPERM", control: ns},
		{id: "mount-mount-namespace", does: "a mount namespace (unshare)", args: []string{"unshare", "131072"}, want: "EPERM", control: ns},
		{id: "mount-clone-user", does: "a user namespace (clone)", args: []string{"clone", "268435456"}, want: "EPERM"},
		{id: "mount-clone3-user", does: "a user namespace (clone3, which no filter can look into)", args: []string{"clone3"}, want: "ENOSYS|EPERM|ENOSPC"},
		{id: "mount-setns", does: "enter a namespace (setns)", args: []string{"setns"}, want: "EPERM", control: ns},
	}
}

func kernelAttempts() []attempt {
	return []attempt{
		{id: "kernel-bpf", does: "load into the kernel (bpf)", args: []string{"bpf"}, want: "EPERM", control: asRoot},
		{id: "kernel-keyring", does: "use the kernel's keyrings, which know no namespaces", args: []string{"keyctl"}, want: "EPERM"},
		{id: "kernel-userfaultfd", does: "userfaultfd", args: []string{"userfaultfd"}, want: "EPERM"},
		{id: "kernel-io-uring", does: "io_uring", args: []string{"io-uring"}, want: "EPERM"},
		{id: "kernel-perf", does: "perf_event_open", args: []string{"perf"}, want: "EPERM"},
		{id: "kernel-module", does: "load a module", args: []string{"module"}, want: "EPERM", control: asRoot, lacks: "ENOSYS", why: "this kernel is built without modules"},
		{id: "kernel-kexec", does: "load another kernel (kexec_load)", args: []string{"kexec"}, want: "EPERM", control: asRoot, lacks: "ENOSYS", why: "this kernel is built without kexec"},
		{id: "kernel-reboot", does: "reboot (with a command that does not exist)", args: []string{"reboot"}, want: "EPERM", control: asRoot},
		{id: "kernel-swapon", does: "swapon", args: []string{"swapon"}, want: "EPERM", control: asRoot},
		{id: "kernel-acct", does: "acct", args: []string{"acct"}, want: "EPERM", control: asRoot},
		{id: "kernel-syslog", does: "read the size of the kernel's log (syslog)", args: []string{"syslog"}, want: "EPERM", control: asRoot},
		{id: "kernel-clock", does: "set the clock (to a time that cannot be)", args: []string{"clock"}, want: "EPERM", control: asRoot},
		{id: "kernel-fanotify", does: "watch file systems (fanotify_init)", args: []string{"fanotify"}, want: "EPERM"},
		{id: "kernel-openat2", does: "make a setuid file with openat2, which no filter can look into", args: []string{"openat2"}, want: "ENOSYS"},
		{id: "kernel-int80", does: "call by the numbers of 32-bit programs (int 0x80)", args: []string{"int80"}, want: "ENOSYS"},
		{id: "kernel-x32", does: "call by the numbers of the x32 ABI", args: []string{"x32"}, want: "ENOSYS", lacks: "ENOSYS", why: "this kernel is built without the x32 ABI"},
		{id: "kernel-filter-off", does: "take the system call filter off, put one over it that allows everything, then make a call that it refuses", args: []string{"filter-off"}, want: "EPERM"},
		{id: "kernel-new-privs", does: "take no_new_privs off, then become root by a setuid program", args: []string{"new-privs-off", "/usr/bin/su"}, want: "failed: no gain, NoNewPrivs 1", control: asUser, sees: "ok uid 0, NoNewPrivs 0", lacks: "failed: no gain, NoNewPrivs 1", why: "the suite was started by a program that has given it up"},
		{id: "kernel-hostname", does: "set the host name", args: []string{"hostname"}, want: "EPERM", control: inNamespaces},
		{id: "kernel-tiocsti", does: "type into a terminal (TIOCSTI)", args: []string{"tiocsti"}, want: "EPERM", control: asRoot},
	}
}

func rightAttempts() []attempt {
	out := []attempt{
		{id: "right-setuid", does: "become uid 0 (setuid)", args: []string{"setuid"}, want: "EPERM", user: "EINVAL", control: inNamespaces},
		{id: "right-setgroups", does: "join a group (setgroups)", args: []string{"setgroups"}, want: "EPERM", control: asRoot},
		{id: "right-capset", does: "take a capability (capset)", args: []string{"capset"}, want: "EPERM", control: inNamespaces},
		{id: "right-setcap", does: "give a program a capability (security.capability)", args: []string{"setcap", "capable"}, want: "EPERM", control: inNamespaces},
		{id: "right-su", does: "run setuid programs of the host as root (su)", sh: "su -s /bin/sh -c 'id -u' root", want: "exit [1-9][0-9]* .*", control: asRoot, sees: "exit 0 0"},
	}
	for _, m := range []struct{ verb, does string }{
		{"suid-fchmod", "fchmod"},
		{"suid-fchmodat", "fchmodat"},
		{"suid-fchmodat2", "fchmodat2"},
		{"sgid-fchmodat", "fchmodat, setgid"},
		{"suid-open", "openat"},
		{"suid-mknod", "mknodat"},
		{"sgid-mkdir", "mkdirat, setgid"},
	} {
		out = append(out, attempt{id: "right-" + m.verb, does: "leave a setuid file (" + m.does + ")", args: []string{m.verb}, want: "EPERM"})
	}
	return out
}

func boxdAttempts() []attempt {
	const victim = "{victim}"
	return []attempt{
		{id: "boxd-fds", does: "find a descriptor that leaked into a tool", args: []string{"fds"}, want: "failed: none beyond stdio", free: []string{"leaky", "fds"}, sees: "ok .*=.*"},
		{id: "boxd-ptrace", does: "trace boxd", args: []string{"ptrace", "1"}, free: []string{"ptrace", victim}, want: "EPERM"},
		{id: "boxd-mem", does: "read boxd's memory (/proc/1/mem)", args: []string{"mem", "1"}, free: []string{"mem", victim}, want: "EACCES", sees: "ok escape-canary-.*"},
		{id: "boxd-vm-read", does: "read boxd's memory (process_vm_readv)", args: []string{"vmread", "1", "4194304"}, free: []string{"vmread", victim, "{at}"}, want: "EPERM", sees: "ok escape-canary-host"},
		{id: "boxd-vm-write", does: "write boxd's memory (process_vm_writev)", args: []string{"vmwrite", "1", "4194304"}, free: []string{"vmwrite", victim, "{at}"}, want: "EPERM"},
		{id: "boxd-environ", does: "read boxd's environment", args: []string{"read", "/proc/1/environ"}, free: []string{"read", "/proc/{victim}/environ"}, want: "EACCES", sees: "ok ESCAPE_SECRET=.*"},
		{id: "boxd-open-files", does: "list boxd's descriptors", args: []string{"ls", "/proc/1/fd"}, free: []string{"ls", "/proc/{victim}/fd"}, want: "EACCES"},
		{id: "boxd-root", does: "list boxd's root", args: []string{"ls", "/proc/1/root/"}, free: []string{"ls", "/proc/{victim}/root/"}, want: "EACCES"},
		{id: "boxd-binary", does: "read boxd's program", args: []string{"read", "/proc/1/exe"}, free: []string{"read", "/proc/{victim}/exe"}, want: "EACCES", sees: "ok .?ELF.*"},
		{id: "boxd-pidfd-get", does: "take a descriptor from boxd (pidfd_getfd)", args: []string{"pidfd-get", "1"}, free: []string{"pidfd-get", victim}, want: "EPERM"},
		{id: "boxd-kill", does: "kill -9 boxd", args: []string{"kill", "1", "9"}, free: []string{"kill", victim, "9"}, want: "EPERM"},
		{id: "boxd-term", does: "SIGTERM to boxd", args: []string{"kill", "1", "15"}, free: []string{"kill", victim, "15"}, want: "EPERM"},
		{id: "boxd-segv", does: "SIGSEGV to boxd", args: []string{"kill", "1", "11"}, free: []string{"kill", victim, "11"}, want: "EPERM"},
		{id: "boxd-threads", does: "SIGTERM to every thread of boxd in three ways", args: []string{"killall", "1", "15"}, free: []string{"killall", victim, "15"}, want: "EPERM", limit: "landlock"},
		{id: "boxd-everybody", does: "SIGKILL to everybody (kill -9 -1); boxd stands", sh: "exec kill -9 -1", want: "exit .*", free: []string{"kill -9 $BASHPID"}, sees: "exit -1"},
		{id: "boxd-prlimit", does: "take boxd's descriptors away (prlimit)", args: []string{"prlimit", "1"}, free: []string{"prlimit", victim}, want: "EPERM"},
		{id: "boxd-state", does: "find boxd's state, its token and spools", args: []string{"find", "token", "/"}, free: []string{"find", "token", "{data}"}, want: "failed: none"},
	}
}

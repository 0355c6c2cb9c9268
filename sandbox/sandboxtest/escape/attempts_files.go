package escape

// Attempts to reach files of other sessions and of the host. The same path is tried in the box
// and, as the control, on the host: there it leads to the canary.

func otherAttempts() []attempt {
	const secret = "ok escape-canary-other.*"
	const gone = "failed: none: .*"
	return []attempt{
		{id: "other-absolute", does: "read another session's file by its path", args: []string{"read", "{other}"}, want: "ENOENT", sees: secret},
		{id: "other-relative", does: "the same with 64 steps up", args: []string{"climb", "{other}"}, want: "ENOENT", sees: secret},
		{id: "other-shell", does: "the same with cat", sh: "cat {other}", want: "exit 1 .*No such file.*", sees: "exit 0 escape-canary-other"},
		{id: "other-symlink", does: "read it through a symlink of one's own", args: []string{"symlink", "{other}", "way"}, want: "ENOENT", sees: secret},
		{id: "other-hardlink", does: "give it a second name in one's own tree", args: []string{"link", "{other}", "way"}, free: []string{"link", "{host}", "way"}, want: "ENOENT", sees: "ok escape-canary-host.*"},
		{id: "other-dir", does: "list another session's directory", args: []string{"ls", "{other-dir}"}, want: "ENOENT", sees: "ok .*workspace.*"},
		{id: "other-proc-root", does: "read it below /proc/1/root", args: []string{"read", "/proc/1/root{other}"}, free: []string{"read", "/proc/{victim}/root{host}"}, want: "EACCES", sees: "ok escape-canary-host.*"},
		{id: "other-proc-cwd", does: "read it through the working directory of its process", args: []string{"scan", "cwd", canary}, free: []string{"victimised", "scan", "cwd", canary, "{victim}"}, want: gone},
		{id: "other-proc-fd", does: "read it through an open descriptor of its process", args: []string{"scan", "fd", canary}, free: []string{"victimised", "scan", "fd", canary, "{victim}"}, want: gone},
		{id: "other-environ", does: "find its secret in the environment of a process", args: []string{"scan", "environ", canary}, free: []string{"victimised", "scan", "environ", canary, "{victim}"}, want: gone},
		{id: "other-mem", does: "find its secret in the memory of a process", args: []string{"scan", "mem", canary}, free: []string{"victimised", "scan", "mem", canary, "{victim}"}, want: gone},
		{id: "other-maps", does: "find its program in the maps of a process", args: []string{"scan", "maps", "{other-dir}"}, free: []string{"victimised", "scan", "maps", "probe", "{victim}"}, want: gone},
		{id: "other-cmdline", does: "see its process by its command line", args: []string{"scan", "cmdline", "victim"}, free: []string{"victimised", "scan", "cmdline", "victim", "{victim}"}, want: gone},
		{id: "other-signal", does: "signal a process of the host", args: []string{"kill", "{pid}", "0"}, want: "ESRCH"},
		{id: "other-ptrace", does: "trace a process of the host", args: []string{"ptrace", "{pid}"}, free: []string{"ptrace", "{victim}"}, want: "EPERM"},
		{id: "other-vm-read", does: "read the memory of a process of the host (process_vm_readv)", args: []string{"vmread", "{pid}", "4096"}, free: []string{"vmread", "{victim}", "{at}"}, want: "EPERM", sees: "ok escape-canary-host"},
		{id: "other-tree", does: "search everything for the name of a file of the data directory", args: []string{"find", "holdfast.db", "/"}, free: []string{"find", "holdfast.db", "{data}"}, want: "failed: none"},
		{id: "other-fileops", does: "read it with the file operations, absolute", do: func(r *rig) Row { return r.readOp("{other}") }},
		{id: "other-fileops-climb", does: "the same with steps up", do: func(r *rig) Row { return r.readOp("../../../../../../../../..{other}") }},
		{id: "other-fileops-link", does: "the same through a symlink that a tool planted", do: plantedLink},
	}
}

func hostAttempts() []attempt {
	return []attempt{
		{id: "host-file", does: "read a world-readable file of the host", args: []string{"read", "{host}"}, want: "ENOENT", sees: "ok escape-canary-host.*"},
		{id: "host-shadow", does: "read /etc/shadow", args: []string{"read", "/etc/shadow"}, want: "ENOENT", control: asRoot, sees: "ok [a-z].*"},
		{id: "host-ssh", does: "read a private ssh key", args: []string{"read", "{key}"}, want: "ENOENT", sees: "ok escape-canary-key.*"},
		{id: "host-root-home", does: "list /root", args: []string{"ls", "/root"}, want: "ENOENT", control: asRoot},
		{id: "host-var", does: "list /var", args: []string{"ls", "/var"}, want: "ENOENT", sees: "ok .*lib.*"},
		{id: "host-token", does: "read the owner token", args: []string{"read", "{token}"}, want: "ENOENT", sees: "ok escape-canary-token.*"},
		{id: "host-database", does: "read the server's database", args: []string{"read", "{db}"}, want: "ENOENT", sees: "ok escape-canary-database.*"},
		{id: "host-data", does: "list the data directory", args: []string{"ls", "{data}"}, want: "ENOENT", sees: "ok .*holdfast.db.*"},
		{id: "host-environment", does: "the server's keys in one's own environment", sh: "env | grep " + canary, want: "exit 1", sees: "exit 0 .*escape-canary-environment.*"},
		{id: "host-proc-environ", does: "the same in /proc of every process", args: []string{"scan", "environ", canary + "environment"}, free: []string{"victimised", "scan", "environ", canary + "environment", "{victim}"}, want: "failed: none: .*"},
		{id: "host-disk", does: "see the host's disks and memory in /dev", args: []string{"ls", "/dev"}, want: "ok fd,full,null,ptmx,pts,random,shm,stderr,stdin,stdout,tty,urandom,zero", sees: "ok .*(vda|sda|nvme|kmsg|mem|loop0).*"},
		{id: "host-pages", does: "read the state of the machine's memory, page by page", args: []string{"read", "/proc/kpagecount"}, want: "EACCES", control: asRoot},
		{id: "host-cgroups", does: "list the host's cgroups", args: []string{"ls", "/sys/fs/cgroup"}, want: "ENOENT", sees: "ok .*"},
		{id: "host-handle", does: "open a file by handle, past every path", args: []string{"handle", "/workspace/probe"}, free: []string{"handle", "{host}"}, want: "EPERM", control: asRoot, sees: "ok escape-canary-host"},
	}
}

func writeAttempts() []attempt {
	out := []attempt{}
	for _, p := range []struct{ id, dir string }{
		{"root", ""}, {"usr", "/usr/bin"}, {"etc", "/etc"}, {"run", "/run/holdfast"}, {"dev", "/dev"}, {"home", "/home"},
	} {
		a := attempt{id: "write-" + p.id, does: "make a file in " + p.dir + "/", args: []string{"create", p.dir + "/escape"}, control: inNamespaces, free: []string{"within", "{root}", "create", p.dir + "/escape"}, want: "EROFS|EACCES"}
		if p.id == "run" {
			a.limit = "landlock" // only Landlock refuses this attempt, because in an ordinary user's box boxd and tools have one uid
		}
		out = append(out, a)
	}
	return append(
		out,
		attempt{id: "write-replace", does: "open a program of the host for writing (/usr/bin/env)", args: []string{"open", "/usr/bin/env"}, want: "EROFS|EACCES", control: inNamespaces, free: []string{"within", "{root}", "open", "/usr/bin/env"}},
		attempt{id: "write-host", does: "write a file of the host", sh: "echo x > {outside}/written", want: "exit 1 .*No such file or directory"},
		attempt{id: "write-proc-sys", does: "set core_pattern, which the host's kernel runs", args: []string{"rewrite", "/proc/sys/kernel/core_pattern"}, want: "EACCES|EROFS", control: asRoot},
		attempt{id: "write-proc-net", does: "set a switch of one's own network", args: []string{"rewrite", "/proc/sys/net/ipv4/ip_forward"}, want: "EACCES|EROFS", control: inNamespaces},
		attempt{id: "write-sys", does: "see /sys", args: []string{"ls", "/sys"}, want: "ENOENT"},
		attempt{id: "write-cgroup", does: "make a cgroup", sh: "for d in memory unified .; do mkdir /sys/fs/cgroup/$d/escape && exec rmdir /sys/fs/cgroup/$d/escape; done; exit 1", want: "exit 1 (.*No such file or directory)+", control: asRoot},
		attempt{id: "write-score", does: "be killed later than others (oom_score_adj)", args: []string{"score"}, want: "EACCES", limit: "landlock"},
		attempt{id: "write-tun", does: "open /dev/net/tun", args: []string{"open", "/dev/net/tun"}, want: "ENOENT", control: asRoot},
	)
}

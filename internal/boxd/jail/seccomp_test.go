//go:build linux

package jail

import (
	"fmt"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// call is a system call as a filter sees it.
type call struct {
	nr, arch uint32
	args     [6]uint64
}

// run interprets a program, so that the policy of every architecture is tested
// on each. It fails the test on an instruction seccomp would refuse.
func run(t *testing.T, prog []unix.SockFilter, c call) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(prog); pc++ {
		i := prog[pc]
		jump := func(hit bool) {
			if hit {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch {
			case i.K == 0:
				a = c.nr
			case i.K == 4:
				a = c.arch
			case i.K >= 16 && i.K < 64 && i.K%4 == 0:
				v := c.args[(i.K-16)/8]
				if i.K%8 == 4 {
					v >>= 32
				}
				a = uint32(v)
			default:
				t.Fatalf("load from %d", i.K)
			}
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= i.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&i.K != 0)
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %d: code %#x", pc, i.Code)
		}
	}
	t.Fatal("ran off the end")
	return 0
}

func filters(raw []bpf.RawInstruction) []unix.SockFilter {
	out := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		out[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return out
}

func verdict(ret uint32) string {
	switch {
	case ret == unix.SECCOMP_RET_ALLOW:
		return "allow"
	case ret&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO:
		return unix.ErrnoName(unix.Errno(ret & unix.SECCOMP_RET_DATA))
	}
	return fmt.Sprintf("%#x", ret)
}

// policyCase is a call and what a tool gets for it.
type policyCase struct {
	name string
	args [6]uint64
	want string
}

// high is ignored by the kernel in an int.
const high = uint64(1) << 32

var policyCases = []policyCase{
	{"read", [6]uint64{}, "allow"},
	{"execve", [6]uint64{}, "allow"},
	{"vfork", [6]uint64{}, "allow"},
	{"clone", [6]uint64{0x4111}, "allow"}, // CLONE_VM|CLONE_VFORK|SIGCHLD
	{"clone", [6]uint64{unix.CLONE_NEWUSER | 17}, "EPERM"},
	{"clone", [6]uint64{unix.CLONE_NEWNS | 17}, "EPERM"},
	{"clone", [6]uint64{unix.CLONE_NEWNET | high}, "EPERM"},
	{"clone", [6]uint64{unix.CLONE_NEWPID}, "EPERM"},
	{"clone", [6]uint64{unix.CLONE_NEWCGROUP}, "EPERM"},
	{"clone", [6]uint64{unix.CLONE_NEWUTS}, "EPERM"},
	{"clone", [6]uint64{unix.CLONE_NEWIPC}, "EPERM"},
	{"openat", [6]uint64{0, 0, unix.O_RDONLY, 0o4755}, "allow"}, // no file is made
	{"openat", [6]uint64{0, 0, unix.O_CREAT | unix.O_WRONLY, 0o644}, "allow"},
	{"openat", [6]uint64{0, 0, unix.O_CREAT | unix.O_WRONLY, 0o4755}, "EPERM"},
	{"openat", [6]uint64{0, 0, unix.O_CREAT, 0o2755}, "EPERM"},
	{"openat", [6]uint64{0, 0, 0x410000 | 2, 0o4755}, "EPERM"}, // O_TMPFILE
	{"openat", [6]uint64{0, 0, high | unix.O_CREAT, high | 0o4755}, "EPERM"},
	{"open", [6]uint64{0, unix.O_CREAT, 0o4755}, "EPERM"},
	{"open", [6]uint64{0, unix.O_CREAT, 0o755}, "allow"},
	{"creat", [6]uint64{0, 0o4755}, "EPERM"},
	{"mkdir", [6]uint64{0, 0o2755}, "EPERM"},
	{"mkdirat", [6]uint64{0, 0, 0o755}, "allow"},
	{"mkdirat", [6]uint64{0, 0, 0o4755}, "EPERM"},
	{"chmod", [6]uint64{0, 0o4755}, "EPERM"},
	{"chmod", [6]uint64{0, 0o1777}, "allow"},
	{"fchmod", [6]uint64{0, 0o2755}, "EPERM"},
	{"fchmod", [6]uint64{0, 0o755}, "allow"},
	{"fchmodat", [6]uint64{0, 0, 0o6755}, "EPERM"},
	{"fchmodat", [6]uint64{0, 0, 0o755}, "allow"},
	{"fchmodat2", [6]uint64{0, 0, 0o4755}, "EPERM"},
	{"mknod", [6]uint64{0, unix.S_IFIFO | 0o644}, "allow"},
	{"mknodat", [6]uint64{0, 0, unix.S_IFIFO | 0o644}, "allow"},
	{"mknodat", [6]uint64{0, 0, unix.S_IFCHR | 0o644}, "EPERM"},
	{"mknodat", [6]uint64{0, 0, unix.S_IFBLK | 0o644}, "EPERM"},
	{"mknodat", [6]uint64{0, 0, unix.S_IFREG | 0o4755}, "EPERM"},
	{"ioctl", [6]uint64{0, unix.TIOCGWINSZ}, "allow"},
	{"ioctl", [6]uint64{0, unix.TIOCSTI}, "EPERM"},
	{"ioctl", [6]uint64{0, unix.TIOCSTI | high}, "EPERM"},
	{"ioctl", [6]uint64{0, 0x541C}, "EPERM"},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, "allow"},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM}, "allow"},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM}, "allow"},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, 262}, "EPROTONOSUPPORT"},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_STREAM, 262 | high}, "EPROTONOSUPPORT"},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 6}, "allow"},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 17}, "allow"},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM, 58}, "allow"},           // ping
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_RAW, 1}, "allow"},               // the kernel asks for a capability
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM, 136}, "EPROTONOSUPPORT"}, // UDP-Lite
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 136 | high}, "EPROTONOSUPPORT"},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, 132}, "EPROTONOSUPPORT"}, // SCTP
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_SEQPACKET}, "ESOCKTNOSUPPORT"},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC, 132}, "ESOCKTNOSUPPORT"},
	{"socket", [6]uint64{unix.AF_INET, 6, 33}, "ESOCKTNOSUPPORT"}, // DCCP
	{"socket", [6]uint64{unix.AF_INET, 10}, "ESOCKTNOSUPPORT"},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, "allow"},
	{"socketpair", [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, "allow"},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, "allow"},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "EPERM"},
	{"socket", [6]uint64{unix.AF_PACKET, unix.SOCK_RAW}, "EPERM"},
	{"socket", [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, "EPERM"},
	{"socket", [6]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, "EPERM"},
	{"socket", [6]uint64{unix.AF_UNIX | high}, "allow"},
	{"socketpair", [6]uint64{unix.AF_UNIX}, "allow"},
	{"socketpair", [6]uint64{unix.AF_TIPC}, "EPERM"},
	{"prlimit64", [6]uint64{0}, "allow"},
	{"prlimit64", [6]uint64{1}, "EPERM"},
	{"personality", [6]uint64{0xffffffff}, "allow"},
	{"personality", [6]uint64{0x40000}, "allow"},
	{"personality", [6]uint64{0x400000}, "EPERM"}, // READ_IMPLIES_EXEC
}

// TestSeccompPolicy holds what tools may call, on both architectures; that no call makes a
// setuid or setgid file is among it (HZ-8).
func TestSeccompPolicy(t *testing.T) {
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, v := range []struct{ clone3, openat2 bool }{{false, false}, {true, false}, {false, true}} {
			raw, err := program(info, v.clone3, v.openat2)
			if err != nil {
				t.Fatal(err)
			}
			holdsPolicy(t, info, filters(raw), v.clone3, v.openat2)
		}
	}
	raw, err := program(arch.X86_64, false, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := verdict(run(t, filters(raw), call{nr: 0x40000000 | 520, arch: uint32(arch.X86_64.ID)})); got != "ENOSYS" {
		t.Errorf("a call of the x32 ABI is %s", got)
	}
}

// holdsPolicy runs every case; a call that the architecture lacks is skipped.
func holdsPolicy(t *testing.T, info *arch.Info, prog []unix.SockFilter, clone3, openat2 bool) {
	t.Helper()
	cases := policyCases
	for _, name := range refused {
		cases = append(cases, policyCase{name: name, want: "EPERM"})
	}
	third := map[bool]string{true: "allow", false: "ENOSYS"}[clone3]
	second := map[bool]string{true: "allow", false: "ENOSYS"}[openat2]
	cases = append(cases, policyCase{name: "clone3", want: third}, policyCase{name: "openat2", want: second})
	tested := 0
	for _, c := range cases {
		nr, ok := info.SyscallNames[c.name]
		if young, known := newCalls[c.name]; known {
			nr, ok = young, true
		}
		if !ok {
			continue
		}
		tested++
		if got := verdict(run(t, prog, call{uint32(nr), uint32(info.ID), c.args})); got != c.want {
			t.Errorf("%s %s%#x: %s, want %s", info.Name, c.name, c.args, got, c.want)
		}
	}
	if tested < 90 {
		t.Errorf("%s: only %d cases apply", info.Name, tested)
	}
	foreign := map[*arch.Info]uint32{arch.X86_64: uint32(arch.I386.ID), arch.AARCH64: uint32(arch.ARM.ID)}[info]
	if got := verdict(run(t, prog, call{nr: 3, arch: foreign})); got != "ENOSYS" {
		t.Errorf("%s: a call of the 32-bit ABI is %s", info.Name, got)
	}
}

// TestHZ9_GuardThread: whatever call signals a process, the forking thread and
// boxd are not to be reached, and a signal number is not taken for a thread.
func TestHZ9_GuardThread(t *testing.T) {
	const tid = 9 // also SIGKILL
	prog := guardThread(tid)
	for _, c := range []struct {
		nr   uint32
		args [6]uint64
		want string
	}{
		{unix.SYS_KILL, [6]uint64{1, 15}, "EPERM"},
		{unix.SYS_KILL, [6]uint64{tid, 15}, "EPERM"},
		{unix.SYS_KILL, [6]uint64{1<<32 | tid, 15}, "EPERM"},
		{unix.SYS_KILL, [6]uint64{77, 9}, "allow"},
		{unix.SYS_KILL, [6]uint64{^uint64(0), 9}, "allow"},
		{unix.SYS_TKILL, [6]uint64{tid, 15}, "EPERM"},
		{unix.SYS_TKILL, [6]uint64{77, 9}, "allow"},
		{unix.SYS_TGKILL, [6]uint64{1, 5, 15}, "EPERM"},
		{unix.SYS_TGKILL, [6]uint64{77, tid, 15}, "EPERM"},
		{unix.SYS_TGKILL, [6]uint64{77, 78, 15}, "allow"},
		{unix.SYS_RT_SIGQUEUEINFO, [6]uint64{1, 15}, "EPERM"},
		{unix.SYS_RT_SIGQUEUEINFO, [6]uint64{77, 9}, "allow"},
		{unix.SYS_RT_TGSIGQUEUEINFO, [6]uint64{1, tid, 15}, "EPERM"},
		{unix.SYS_RT_TGSIGQUEUEINFO, [6]uint64{77, 78, 9}, "allow"},
		{unix.SYS_PIDFD_OPEN, [6]uint64{1, 0}, "EPERM"},
		{unix.SYS_PIDFD_OPEN, [6]uint64{tid, 0x80}, "EPERM"},
		{unix.SYS_PIDFD_OPEN, [6]uint64{77, 9}, "allow"},
		{unix.SYS_READ, [6]uint64{1, 1}, "allow"},
	} {
		if got := verdict(run(t, prog, call{nr: c.nr, args: c.args})); got != c.want {
			t.Errorf("call %d%v: %s, want %s", c.nr, c.args, got, c.want)
		}
	}
}

// TestNoClone3: what the forking thread of most boxes has in two parts is the program
// that the other threads have in one. Of two filters the kernel obeys the stricter.
func TestNoClone3(t *testing.T) {
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		whole, err := program(info, false, false)
		if err != nil {
			t.Fatal(err)
		}
		part, err := program(info, true, false)
		if err != nil {
			t.Fatal(err)
		}
		one, two := filters(whole), filters(part)
		both := func(c call) uint32 {
			if r := run(t, noClone3, c); r != unix.SECCOMP_RET_ALLOW {
				return r
			}
			return run(t, two, c)
		}
		args := [][6]uint64{{}, {high, high, high, high}, {^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}
		for _, c := range policyCases {
			args = append(args, c.args)
		}
		for _, id := range []uint32{uint32(info.ID), uint32(arch.I386.ID), uint32(arch.ARM.ID)} {
			for nr := range uint32(1200) {
				for _, base := range []uint32{0, 0x40000000, 1 << 31} {
					for _, a := range args {
						c := call{nr: base | nr, arch: id, args: a}
						if got, want := both(c), run(t, one, c); got != want {
							t.Fatalf("%s: call %#x of %#x%#x: %#x, want %#x", info.Name, c.nr, id, a, got, want)
						}
					}
				}
			}
		}
	}
}

func TestHandledRightsFollowTheABI(t *testing.T) {
	for abi, want := range map[int]uint64{1: 1<<13 - 1, 2: 1<<14 - 1, 3: 1<<15 - 1, 4: 1<<15 - 1, 5: 1<<16 - 1, 9: 1<<16 - 1} {
		if got := handledFS(abi); got != want {
			t.Errorf("abi %d: %#x, want %#x", abi, got, want)
		}
	}
}

func TestMountTargets(t *testing.T) {
	for target, want := range map[string]string{"/usr": "usr", "/etc/passwd": "etc/passwd", "": "", "/": "", "usr": "", "/../x": "", "/a/../b": "", "/a/": ""} {
		got, err := below(target)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", target, got, err)
		}
	}
}

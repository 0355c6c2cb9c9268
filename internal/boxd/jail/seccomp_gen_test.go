package jail

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"os"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

var update = flag.Bool("update", false, "write the generated seccomp programs")

// The policy. What a syscall may not do is answered with EPERM unless said
// otherwise. Arguments of type int are compared by their low half only: the
// kernel ignores the high one, and a filter that looked at it could be fooled.

// refused calls answer EPERM whatever their arguments are.
var refused = []string{
	// mounts and roots
	"mount", "umount", "umount2", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick",
	"mount_setattr", "pivot_root", "chroot",
	// other processes, the kernel
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "move_pages", "migrate_pages",
	"bpf", "perf_event_open", "keyctl", "add_key", "request_key", "userfaultfd", "fanotify_init",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// namespaces
	"setns", "unshare",
	// files by handle, quotas, accounting
	"open_by_handle_at", "name_to_handle_at", "quotactl", "quotactl_fd", "acct", "lookup_dcookie", "nfsservctl",
	// the machine
	"swapon", "swapoff", "reboot", "settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64", "adjtimex", "stime",
	"iopl", "ioperm", "syslog", "sethostname", "setdomainname", "vhangup", "uselib", "sysfs", "_sysctl", "vm86", "vm86old",
}

// absent calls answer ENOSYS: callers fall back to an older call that the
// program can see into.
var absent = []string{"openat2"}

const (
	errnoEPERM           = 1
	errnoENOSYS          = 38
	errnoEPROTONOSUPPORT = 93

	specialBits = 0o6000
	newNS       = 0x7E020000
	oCreat      = 0x40
	oTmpfile    = 0x400000
	charOrBlock = 0x2000 // set in S_IFCHR and S_IFBLK, in no other type mknod takes
)

// newCalls are calls younger than the library's table; since 424 all
// architectures number them alike.
var newCalls = map[string]int{
	"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
	"clone3": 435, "openat2": 437, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
	"fchmodat2": 452, "open_tree_attr": 467,
}

type generator struct {
	seccomp.Program
	names map[string]int
}

func deny(errno uint32) seccomp.Action { return seccomp.ActionErrno | seccomp.Action(errno) }

// on emits body for a call that this architecture has. body ends in a return.
func (g *generator) on(name string, body func()) {
	nr, ok := g.names[name]
	if !ok {
		return
	}
	next := g.NewLabel()
	g.JmpIfTrue(bpf.JumpNotEqual, uint32(nr), next)
	body()
	g.SetLabel(next)
}

// anyBit denies when the low half of an argument has one of the bits, else allows.
func (g *generator) anyBit(arg, bits uint32) func() {
	return func() {
		no := g.NewLabel()
		g.LdLo(arg)
		g.JmpIfTrue(bpf.JumpBitsNotSet, bits, no)
		g.Ret(deny(errnoEPERM))
		g.SetLabel(no)
		g.Ret(seccomp.ActionAllow)
	}
}

// oneOf allows when the low half of an argument is one of the values, else denies.
func (g *generator) oneOf(arg uint32, values ...uint32) func() {
	return func() {
		g.LdLo(arg)
		yes := g.NewLabel()
		for _, v := range values {
			g.JmpIfTrue(bpf.JumpEqual, v, yes)
		}
		g.Ret(deny(errnoEPERM))
		g.SetLabel(yes)
		g.Ret(seccomp.ActionAllow)
	}
}

// noneOf denies when the low half of an argument is one of the values, else allows.
func (g *generator) noneOf(arg uint32, values ...uint32) func() {
	return func() {
		g.LdLo(arg)
		hit := g.NewLabel()
		for _, v := range values {
			g.JmpIfTrue(bpf.JumpEqual, v, hit)
		}
		g.Ret(seccomp.ActionAllow)
		g.SetLabel(hit)
		g.Ret(deny(errnoEPERM))
	}
}

// creating denies special mode bits when the flags make a file.
func (g *generator) creating(flags, mode uint32) func() {
	return func() {
		plain := g.NewLabel()
		g.LdLo(flags)
		g.JmpIfTrue(bpf.JumpBitsNotSet, oCreat|oTmpfile, plain)
		g.LdLo(mode)
		g.JmpIfTrue(bpf.JumpBitsNotSet, specialBits, plain)
		g.Ret(deny(errnoEPERM))
		g.SetLabel(plain)
		g.Ret(seccomp.ActionAllow)
	}
}

// socket allows UNIX, INET and INET6 without Multipath TCP, and NETLINK for routes.
func (g *generator) socket() {
	const unix, inet, inet6, netlink, mptcp = 1, 2, 10, 16, 262
	ok, ip, nl, no, noProto := g.NewLabel(), g.NewLabel(), g.NewLabel(), g.NewLabel(), g.NewLabel()
	g.LdLo(0)
	g.JmpIfTrue(bpf.JumpEqual, unix, ok)
	g.JmpIfTrue(bpf.JumpEqual, inet, ip)
	g.JmpIfTrue(bpf.JumpEqual, inet6, ip)
	g.JmpIfTrue(bpf.JumpEqual, netlink, nl)
	g.Ret(deny(errnoEPERM))
	g.SetLabel(nl)
	g.LdLo(2)
	g.JmpIfTrue(bpf.JumpNotEqual, 0, no)
	g.Ret(seccomp.ActionAllow)
	g.SetLabel(ip)
	g.LdLo(2)
	g.JmpIfTrue(bpf.JumpEqual, mptcp, noProto)
	g.SetLabel(ok)
	g.Ret(seccomp.ActionAllow)
	g.SetLabel(no)
	g.Ret(deny(errnoEPERM))
	g.SetLabel(noProto)
	g.Ret(deny(errnoEPROTONOSUPPORT))
}

// program assembles the policy for an architecture. The library's own Policy is
// not used: it lets calls of a foreign architecture pass and compares all 64 bits.
func program(info *arch.Info, clone3 bool) ([]bpf.RawInstruction, error) {
	g := &generator{Program: seccomp.NewProgram(), names: map[string]int{}}
	for name, nr := range newCalls {
		g.names[name] = nr
	}
	for name, nr := range info.SyscallNames {
		if young, ok := newCalls[name]; ok && young != nr {
			return nil, fmt.Errorf("%s is %d in the table, %d here", name, nr, young)
		}
		g.names[name] = nr
	}
	// Often called ones first.
	g.on("openat", g.creating(2, 3))
	g.on("open", g.creating(1, 2))
	g.on("ioctl", g.noneOf(1, 0x5412, 0x541C)) // TIOCSTI, TIOCLINUX
	g.on("clone", g.anyBit(0, newNS))
	g.on("socket", g.socket)
	g.on("socketpair", g.oneOf(0, 1))
	g.on("prlimit64", g.oneOf(0, 0))
	g.on("personality", g.oneOf(0, 0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff))
	for _, m := range []struct {
		name string
		arg  uint32
		bits uint32
	}{
		{"mkdir", 1, specialBits},
		{"mkdirat", 2, specialBits},
		{"creat", 1, specialBits},
		{"chmod", 1, specialBits},
		{"fchmod", 1, specialBits},
		{"fchmodat", 2, specialBits},
		{"fchmodat2", 2, specialBits},
		{"mknod", 1, specialBits | charOrBlock},
		{"mknodat", 2, specialBits | charOrBlock},
	} {
		g.on(m.name, g.anyBit(m.arg, m.bits))
	}
	none := absent
	if !clone3 {
		none = append([]string{"clone3"}, absent...)
	}
	for _, name := range none {
		g.on(name, func() { g.Ret(deny(errnoENOSYS)) })
	}
	for _, name := range refused {
		g.on(name, func() { g.Ret(deny(errnoEPERM)) })
	}
	g.Ret(seccomp.ActionAllow)
	body, err := g.Assemble()
	if err != nil {
		return nil, err
	}
	head := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(deny(errnoENOSYS))},
		bpf.LoadAbsolute{Off: 0, Size: 4},
	}
	if info.ID == arch.X86_64.ID {
		head = append(
			head,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 0x40000000, SkipFalse: 1}, // the x32 ABI
			bpf.RetConstant{Val: uint32(deny(errnoENOSYS))},
		)
	}
	return bpf.Assemble(append(head, body...))
}

func generate(info *arch.Info) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("// Code generated by go test -run TestSeccompProgramIsGenerated -update; DO NOT EDIT.\n\npackage jail\n\nimport \"golang.org/x/sys/unix\"\n")
	for _, v := range []struct {
		name, doc string
		clone3    bool
	}{
		{"seccompProgram", "is what tools run under; the policy is in seccomp_gen_test.go.", false},
		{"seccompProgramClone3", "is the same with clone3 allowed, for forks into a leaf of cgroup v2.", true},
	} {
		prog, err := program(info, v.clone3)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "\n// %s %s\nvar %s = []unix.SockFilter{\n", v.name, v.doc, v.name)
		for _, i := range prog {
			fmt.Fprintf(&out, "\t{Code: %#x, Jt: %d, Jf: %d, K: %#x},\n", i.Op, i.Jt, i.Jf, i.K)
		}
		out.WriteString("}\n")
	}
	return format.Source(out.Bytes())
}

// TestSeccompProgramIsGenerated fails when the committed constants are not what
// the policy of this file gives.
func TestSeccompProgramIsGenerated(t *testing.T) {
	for file, info := range map[string]*arch.Info{"zseccomp_linux_amd64.go": arch.X86_64, "zseccomp_linux_arm64.go": arch.AARCH64} {
		want, err := generate(info)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the policy gives: run go generate ./internal/boxd/jail", file)
		}
	}
}

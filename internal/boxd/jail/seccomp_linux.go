package jail

import (
	"embed"
	"encoding/binary"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:generate go test -run TestSeccompProgramIsGenerated -update

// programs holds the generated seccomp programs as the kernel takes them, for little-endian
// machines. The policy is in seccomp_gen_test.go.
//
//go:embed seccomp
var programs embed.FS

var (
	// seccompProgramClone3 is what tools run under. clone3 is for forks into a leaf of cgroup v2.
	seccompProgramClone3 = seccompProgram("clone3")
	// seccompProgramFiles is for the threads that serve file operations: without clone3, with openat2.
	seccompProgramFiles = seccompProgram("files")
)

// seccompProgram reads a program of this architecture; it is empty if none was generated.
func seccompProgram(name string) []unix.SockFilter {
	data, _ := programs.ReadFile("seccomp/" + name + "_" + runtime.GOARCH)
	prog := make([]unix.SockFilter, len(data)/8)
	for i := range prog {
		b := data[8*i:]
		prog[i] = unix.SockFilter{Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:])}
	}
	return prog
}

// seccompKnown reports whether a program was generated for this architecture.
func seccompKnown() bool { return len(seccompProgramClone3) > 0 && len(seccompProgramFiles) > 0 }

// filterThread installs the guard and a seccomp program on the calling, locked thread, for it and
// all its children. It also makes sure that no exec can give them privileges.
func filterThread(program []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unbound(); err != nil {
		return err
	}
	if err := loadFilter(guardThread(uint32(unix.Gettid()))); err != nil {
		return err
	}
	return loadFilter(program)
}

// noClone3 is a filter that refuses clone3, which seccompProgramClone3 allows. Only cgroup v2
// needs clone3, whose flags no filter can read; there the whole box may make no user namespace.
// The number of the call is the same on every architecture.
var noClone3 = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_CLONE3},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
}

// loadFilter installs a filter on the calling thread. It must not use TSYNC: boxd's other threads
// stay unfiltered (HZ-1).
func loadFilter(prog []unix.SockFilter) error {
	fp := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fp)))
	if errno != 0 {
		return errno
	}
	return nil
}

// guardThread returns a program that refuses every call that would signal the given thread or the
// first process of the box: the thread shares its children's Landlock domain, and in an ordinary
// user's box their uid too.
func guardThread(tid uint32) []unix.SockFilter {
	const (
		ld  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret = unix.BPF_RET | unix.BPF_K
	)
	// Only in these calls is the second argument a thread id. In others it is a number of another
	// kind, such as a signal, and thread ids of a box are as small as those.
	both := []uint32{unix.SYS_TGKILL, unix.SYS_RT_TGSIGQUEUEINFO}
	first := []uint32{unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_PIDFD_OPEN}
	// Layout: tests, allow, [second: ld, hit], [first: ld, hit, hit], allow, deny.
	prog := []unix.SockFilter{{Code: ld, K: 0}}
	allow := len(both) + len(first) + 1
	for _, nr := range both {
		prog = append(prog, unix.SockFilter{Code: jeq, Jt: uint8(allow - len(prog)), K: nr})
	}
	for _, nr := range first {
		prog = append(prog, unix.SockFilter{Code: jeq, Jt: uint8(allow + 2 - len(prog)), K: nr})
	}
	// The program compares the low half of each argument, as the kernel does.
	return append(
		prog,
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: ld, K: 24},
		unix.SockFilter{Code: jeq, Jt: 4, K: tid},
		unix.SockFilter{Code: ld, K: 16},
		unix.SockFilter{Code: jeq, Jt: 2, K: tid},
		unix.SockFilter{Code: jeq, Jt: 1, K: 1},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	)
}

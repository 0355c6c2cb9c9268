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

// programs holds the generated seccomp programs, in the format of the kernel on little-endian
// machines. seccomp_gen_test.go has the policy from which they are generated.
//
//go:embed seccomp
var programs embed.FS

var (
	// seccompProgramClone3 is the filter of tools and of the threads that fork them. It allows clone3,
	// which forks into the work leaf on cgroup v2 need.
	seccompProgramClone3 = seccompProgram("clone3")
	// seccompProgramFiles is the filter of the threads that run file operations. It allows openat2 and refuses clone3.
	seccompProgramFiles = seccompProgram("files")
)

// seccompProgram returns the seccomp program with that name for this architecture; empty if there is none.
func seccompProgram(name string) []unix.SockFilter {
	data, _ := programs.ReadFile("seccomp/" + name + "_" + runtime.GOARCH)
	prog := make([]unix.SockFilter, len(data)/8)
	for i := range prog {
		b := data[8*i:]
		prog[i] = unix.SockFilter{Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:])}
	}
	return prog
}

// seccompKnown reports whether there are seccomp programs for this architecture.
func seccompKnown() bool { return len(seccompProgramClone3) > 0 && len(seccompProgramFiles) > 0 }

// filterThread installs the filter of guardThread and a seccomp program on the calling thread, which is locked. They
// also apply to its children. It also makes sure that no exec can give the thread or its children privileges.
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

// noClone3 is a seccomp filter that refuses clone3, for threads that fork without cgroup v2. Forks on cgroup v2 need
// clone3. No filter can see the flags of clone3, with which a process could make namespaces; so on cgroup v2 the
// limit of user namespaces of the box is 0. The number of clone3 is the same on every architecture.
var noClone3 = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_CLONE3},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
}

// loadFilter installs a seccomp filter on the calling thread, without TSYNC: boxd's other threads must not get it (HZ-1).
func loadFilter(prog []unix.SockFilter) error {
	fp := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fp)))
	if errno != 0 {
		return errno
	}
	return nil
}

// guardThread returns a seccomp program that refuses system calls that would signal the thread tid or
// process 1 of the box (boxd). tid is a forking or file thread: its children are in its Landlock domain
// and in an ordinary user's box have its uid, so only this filter prevents them from signaling it.
func guardThread(tid uint32) []unix.SockFilter {
	const (
		ld  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret = unix.BPF_RET | unix.BPF_K
	)
	// In the calls of both, the first argument is a process id and the second a thread id. In the calls of first, only the
	// first argument is an id; the second can be a small number as well, such as a signal, and must not be compared.
	both := []uint32{unix.SYS_TGKILL, unix.SYS_RT_TGSIGQUEUEINFO}
	first := []uint32{unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_PIDFD_OPEN}
	// The program: compare the call's number; allow; compare the second argument; compare the first; allow; refuse.
	prog := []unix.SockFilter{{Code: ld, K: 0}}
	allow := len(both) + len(first) + 1
	for _, nr := range both {
		prog = append(prog, unix.SockFilter{Code: jeq, Jt: uint8(allow - len(prog)), K: nr})
	}
	for _, nr := range first {
		prog = append(prog, unix.SockFilter{Code: jeq, Jt: uint8(allow + 2 - len(prog)), K: nr})
	}
	// The program compares the low 32 bits of each argument, as the kernel does.
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

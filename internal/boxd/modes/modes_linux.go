package modes

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

const op = "jail"

// tryCall is a system call to try. Its pointers and descriptors are invalid: a seccomp filter refuses the call by its
// numbers alone, and if the call is not refused, it fails with another error and changes nothing.
type tryCall struct {
	name string
	nr   uintptr
	args [6]uintptr
}

const (
	nowhere = ^uintptr(0) // a value that is neither a valid address nor a valid descriptor
	setUID  = 0o4755
	setGID  = 0o2755
	creates = unix.O_CREAT | unix.O_WRONLY
)

// specialCalls must be refused to every confined thread. toolCalls must be refused only to the threads that fork tools:
// boxd's file operations need openat2, and a filter cannot see the file mode in its arguments.
var (
	specialCalls = append([]tryCall{
		{"fchmod", unix.SYS_FCHMOD, [6]uintptr{nowhere, setUID}},
		{"fchmod", unix.SYS_FCHMOD, [6]uintptr{nowhere, setGID}},
		{"fchmodat", unix.SYS_FCHMODAT, [6]uintptr{nowhere, nowhere, setUID}},
		{"fchmodat", unix.SYS_FCHMODAT, [6]uintptr{nowhere, nowhere, setGID}},
		{"fchmodat2", unix.SYS_FCHMODAT2, [6]uintptr{nowhere, nowhere, setUID}},
		{"fchmodat2", unix.SYS_FCHMODAT2, [6]uintptr{nowhere, nowhere, setGID}},
		{"openat", unix.SYS_OPENAT, [6]uintptr{nowhere, nowhere, creates, setUID}},
		{"openat", unix.SYS_OPENAT, [6]uintptr{nowhere, nowhere, creates, setGID}},
		{"openat", unix.SYS_OPENAT, [6]uintptr{nowhere, nowhere, unix.O_TMPFILE | unix.O_WRONLY, setUID}},
		{"mkdirat", unix.SYS_MKDIRAT, [6]uintptr{nowhere, nowhere, setGID}},
		{"mknodat", unix.SYS_MKNODAT, [6]uintptr{nowhere, nowhere, unix.S_IFREG | setUID}},
		{"mknodat", unix.SYS_MKNODAT, [6]uintptr{nowhere, nowhere, unix.S_IFREG | setGID}},
		{"mknodat", unix.SYS_MKNODAT, [6]uintptr{nowhere, nowhere, unix.S_IFCHR | 0o600}},
		{"mknodat", unix.SYS_MKNODAT, [6]uintptr{nowhere, nowhere, unix.S_IFBLK | 0o600}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uintptr{1, nowhere}},
		{"file_setattr", sysFileSetattr, [6]uintptr{nowhere, nowhere, nowhere, 24}},
	}, oldCalls...)
	toolCalls = []tryCall{{"openat2", unix.SYS_OPENAT2, [6]uintptr{nowhere, nowhere, nowhere, unix.SizeofOpenHow}}}
)

// The numbers of system calls that package unix lacks. They are the same on every architecture.
const (
	sysSetxattrat  = 463
	sysFileSetattr = 469
)

func (c tryCall) try() error {
	_, _, errno := syscall.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
	return held(c.name, errno)
}

// held returns nil if err, the result of a system call, is EPERM or ENOSYS, which means that the call was refused.
// Otherwise it returns an error that names the call.
func held(call string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err == nil || errors.Is(err, syscall.Errno(0)) {
		err = errors.New("it succeeded")
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the system call %s, which can make a file set-uid or set-gid or give it capabilities, is not refused to tools (%w)", call, err).
		WithHint("give the directory to a user that is not root, and tell the authors of Holdfast about this kernel")
}

// Try makes the calling thread try each system call that could make a file dangerous. Some of them need a file: they
// are tried on a new file without a name, in the first of the trees in which the thread can make such a file. If tools
// is true, Try also tries the calls that are refused only to tools. It returns unavailable if a call is not refused, or
// if no test file can be made. It changes nothing in the trees.
func Try(trees []string, tools bool) error {
	calls := specialCalls
	if tools {
		calls = slices.Concat(calls, toolCalls)
	}
	for _, c := range calls {
		if err := c.try(); err != nil {
			return err
		}
	}
	fd, err := -1, error(nil)
	for _, tree := range trees {
		if fd, err = unix.Open(tree, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
			break
		}
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make a test file to try set-uid modes: %w", err)
	}
	defer unix.Close(fd)
	return tryFile(fd)
}

// tryFile tries the calls that could make an open file set-uid or set-gid or give it capabilities, and checks that the
// file got neither.
func tryFile(fd int) error {
	var err error
	for _, mode := range []uint32{setUID, setGID} {
		err = errors.Join(err, held("fchmod", unix.Fchmod(fd, mode)), held("fchmodat2", fchmodat2(fd, mode)))
	}
	for _, value := range capabilities() {
		err = errors.Join(err, held("fsetxattr", unix.Fsetxattr(fd, "security.capability", value, 0)), held("setxattrat", setxattrat(fd, value)))
	}
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	_, err = unix.Fgetxattr(fd, "security.capability", make([]byte, 64))
	if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 || !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the test file became set-uid or set-gid or got capabilities, although each call was refused: mode %o, reading its capabilities: %v", st.Mode, err)
	}
	return nil
}

// capabilities returns two values of the attribute security.capability, each with CAP_SETUID: one without a user
// namespace (revision 2), one for a certain user namespace (revision 3).
func capabilities() [][]byte {
	const all, own = 0x02000001, 0x03000001 // the revision (2 and 3), and the bit that makes the capability effective
	var out [][]byte
	for _, words := range [][]uint32{{all, 1 << unix.CAP_SETUID, 0, 0, 0}, {own, 1 << unix.CAP_SETUID, 0, 0, 0, 0}} {
		var b []byte
		for _, w := range words {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		out = append(out, b)
	}
	return out
}

var noName = [1]byte{}

func fchmodat2(fd int, mode uint32) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_FCHMODAT2, uintptr(fd), uintptr(unsafe.Pointer(&noName)), uintptr(mode), unix.AT_EMPTY_PATH, 0, 0)
	return errno
}

func setxattrat(fd int, value []byte) error {
	name := append([]byte("security.capability"), 0)
	args := struct {
		value       uint64
		size, flags uint32
	}{uint64(uintptr(unsafe.Pointer(&value[0]))), uint32(len(value)), 0}
	_, _, errno := syscall.RawSyscall6(sysSetxattrat, uintptr(fd), uintptr(unsafe.Pointer(&noName)), unix.AT_EMPTY_PATH,
		uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	runtime.KeepAlive(value)
	return errno
}

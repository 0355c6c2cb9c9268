package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// callVerbs are calls that a box refuses, either as unknown to the kernel or because no
// program of a box needs them.
func callVerbs() map[string]verb {
	return map[string]verb{
		"modify-ldt":       simple(modifyLDT),
		"memfd-secret":     simple(func() error { return closingNR(unix.SYS_MEMFD_SECRET, 0) }),
		"set-mempolicy":    simple(func() error { return sys(unix.SYS_SET_MEMPOLICY, 0, 0, 0) }),
		"get-mempolicy":    simple(func() error { return sys(unix.SYS_GET_MEMPOLICY, 0, 0, 0, 0, 0) }),
		"listmount":        simple(listMount),
		"statmount":        simple(statMount),
		"lsm-list-modules": simple(lsmModules),
		"file-getattr":     simple(func() error { return fileAttr(468) }),
		"file-setattr":     simple(func() error { return fileAttr(469) }),
		"fanotify-mark": simple(func() error {
			return reached(sys(unix.SYS_FANOTIFY_MARK, ^uintptr(0), 1, 1, ^uintptr(0), 0), syscall.EBADF)
		}),
		"cachestat":        simple(func() error { return reached(sys(451, ^uintptr(0), 0, 0, 0), syscall.EBADF) }),
		"process-mrelease": simple(func() error { return reached(sys(unix.SYS_PROCESS_MRELEASE, ^uintptr(0), 0), syscall.EBADF) }),
		"raw":              rawCall,
		"every-call":       everyCall,
	}
}

// listMount lists the mounts below the root, by ids that /proc/self/mounts does not
// show.
func listMount() error {
	req := struct {
		size, spare uint32
		id, param   uint64
	}{size: 24, id: ^uint64(0)}
	var ids [16]uint64
	return sys(458, uintptr(unsafe.Pointer(&req)), uintptr(unsafe.Pointer(&ids[0])), uintptr(len(ids)), 0)
}

func statMount() error {
	var stx unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, 0x4000, &stx); err != nil { // STATX_MNT_ID_UNIQUE
		return err
	}
	req := struct {
		size, spare uint32
		id, param   uint64
	}{size: 24, id: stx.Mnt_id, param: 1}
	var buf [4096]byte
	return sys(457, uintptr(unsafe.Pointer(&req)), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0)
}

func lsmModules() error {
	var ids [32]uint64
	size := uint32(len(ids) * 8)
	return sys(461, uintptr(unsafe.Pointer(&ids[0])), uintptr(unsafe.Pointer(&size)), 0)
}

// fileAttr reads or sets the flags of its own file, those of chattr. If the file system
// has none, the call still reached the kernel.
func fileAttr(nr uintptr) error {
	f, err := os.CreateTemp("", "probe")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var attr [3]uint64
	return reached(sys(nr, f.Fd(), cstr(""), uintptr(unsafe.Pointer(&attr[0])), unsafe.Sizeof(attr), unix.AT_EMPTY_PATH),
		syscall.EOPNOTSUPP, syscall.ENOTTY)
}

// refusedExit is the exit code when a raw call failed with an error that the filter
// gives.
const refusedExit = 100

// rawCall makes a call with senseless arguments and exits with a code for its result.
func rawCall(a []string) (string, error) {
	bad := ^uintptr(0)
	_, _, errno := syscall.RawSyscall6(uintptr(atoi(a[0])), bad, bad, bad, bad, bad, bad)
	if errno == syscall.EPERM || errno == syscall.ENOSYS {
		os.Exit(refusedExit + int(errno))
	}
	os.Exit(0)
	return "", nil
}

// everyCall makes each call in a process of its own and lists those that failed with an
// error that the filter gives, as NUMBER=EPERM. A call that does not return, or ends
// its process, was reached.
func everyCall(a []string) (string, error) {
	var out strings.Builder
	from, to := atoi(a[0]), atoi(a[1])
	for nr := from; nr < to; nr++ {
		errno, err := outcomeOf(nr)
		if err != nil {
			return out.String(), err
		}
		if errno != 0 {
			fmt.Fprintf(&out, "%d=%s ", nr, unix.ErrnoName(errno))
		}
	}
	return out.String(), nil
}

func outcomeOf(nr int) (syscall.Errno, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := exec.CommandContext(ctx, "/proc/self/exe", "raw", strconv.Itoa(nr)).Run()
	var exit *exec.ExitError
	switch {
	case err == nil, ctx.Err() != nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("call %d: %w", nr, err)
	case exit.ExitCode() == refusedExit+int(syscall.EPERM), exit.ExitCode() == refusedExit+int(syscall.ENOSYS):
		return syscall.Errno(exit.ExitCode() - refusedExit), nil
	}
	return 0, nil
}

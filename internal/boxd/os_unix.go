//go:build unix

package boxd

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// openPipe opens a pipe; childReads says in which direction. The end of the child is in blocking mode, as
// programs expect, the end of boxd is not. Both ends are close-on-exec.
func openPipe(childReads bool) (own, child *os.File, err error) {
	var fds [2]int
	if err := pipeCloexec(fds[:]); err != nil {
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	ownFD, childFD := fds[0], fds[1]
	if childReads {
		ownFD, childFD = fds[1], fds[0]
	}
	if err := unix.SetNonblock(ownFD, true); err != nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	return os.NewFile(uintptr(ownFD), "pipe"), os.NewFile(uintptr(childFD), "pipe"), nil
}

// control runs fn on the descriptor of a file. Unlike os.File.Fd, it does not set the descriptor to blocking mode.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = fn(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

func setSize(tty *os.File, size wire.Size) error {
	return control(tty, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// isFull reports whether an error of accept is temporary: no free descriptor or memory, or an aborted connection.
func isFull(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

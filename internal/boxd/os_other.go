//go:build unix && !linux

package boxd

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func pipeCloexec(fds []int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(fds); err != nil {
		return err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return nil
}

func ttySignal(*os.File, int) error { return errors.ErrUnsupported }

// openPTY always returns an error: boxd opens terminals itself only on Linux.
func openPTY() (master, slave *os.File, err error) { return nil, nil, errors.ErrUnsupported }

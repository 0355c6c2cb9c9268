package boxd

import (
	"os"

	"golang.org/x/sys/unix"
)

func pipeCloexec(fds []int) error { return unix.Pipe2(fds, unix.O_CLOEXEC) }

// ttySignal sends a signal to the foreground process group of a terminal. The kernel allows only the
// signals that a key of a terminal can send: SIGINT, SIGQUIT and SIGTSTP.
func ttySignal(tty *os.File, sig int) error {
	return control(tty, func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, sig) })
}

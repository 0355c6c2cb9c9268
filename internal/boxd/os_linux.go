package boxd

import (
	"os"

	"golang.org/x/sys/unix"
)

func pipeCloexec(fds []int) error { return unix.Pipe2(fds, unix.O_CLOEXEC) }

// ttySignal signals the terminal's foreground group; the kernel allows it for
// the signals a keyboard can send.
func ttySignal(tty *os.File, sig int) error {
	return control(tty, func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, sig) })
}

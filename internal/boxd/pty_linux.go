package boxd

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenPTY opens both ends of a new terminal. It first tries with the identity of a tool, so that the
// terminal belongs to the tools' user; if that fails, it tries with that of boxd.
func (h *OSHands) OpenPTY() (master, slave *os.File, err error) {
	err = h.forker.Do(func() (err error) {
		master, slave, err = openPTY()
		return err
	})
	if err != nil {
		master, slave, err = openPTY()
	}
	return master, slave, err
}

func openPTY() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open /dev/ptmx", err)
	}
	sfd := -1
	err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	if err == nil {
		sfd, err = peerTTY(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, os.NewSyscallError("open terminal", err)
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), os.NewFile(uintptr(sfd), "tty"), nil
}

// peerTTY opens the slave end of a terminal through the descriptor of its master end, without a path in /dev/pts.
func peerTTY(master int) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

package pack

import (
	"os"
	"syscall"
)

// written is a file whose old content is overwritten.
type written struct{ *os.File }

// Sync implements DiskFile. It leaves the time of the change to the system, because that is all that changed but
// the content: a file system need not commit it.
func (w written) Sync() error {
	for {
		if err := syscall.Fdatasync(int(w.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

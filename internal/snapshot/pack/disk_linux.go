package pack

import (
	"os"
	"syscall"
)

// written is a file whose old content is overwritten in place, such as a spare file.
type written struct{ *os.File }

// Sync implements DiskFile with fdatasync: besides the content only the modification time changed, which need not be on
// disk.
func (w written) Sync() error {
	for {
		if err := syscall.Fdatasync(int(w.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

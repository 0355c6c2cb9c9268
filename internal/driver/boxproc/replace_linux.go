package boxproc

import (
	"os"

	"golang.org/x/sys/unix"
)

// replace moves the file from to the path to, where a file must exist already; otherwise it
// returns fs.ErrNotExist.
func replace(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return os.Remove(from)
}

package boxproc

import (
	"os"

	"golang.org/x/sys/unix"
)

// replace puts a file in the place of one that is there; fs.ErrNotExist where none
// is.
func replace(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return os.Remove(from)
}

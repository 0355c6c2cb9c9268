package escape

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mountSmall mounts a file system of size bytes, in memory, at dir.
func mountSmall(dir string, size int64) (unmount func() error, err error) {
	if err := unix.Mount("disk", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0755", size)); err != nil {
		return nil, os.NewSyscallError("mount", err)
	}
	return func() error { return os.NewSyscallError("umount", unix.Unmount(dir, 0)) }, nil
}

package boots

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Here returns the Boot of Config for a data directory: the kernel's boot id and, on ext4, XFS and
// F2FS, a number that the kernel gives the directory's file system, a new one for each mount of its disk.
// If only a container starts again, both stay the same. Without a boot id it logs a warning and returns "".
func Here(dir string, log *slog.Logger) string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		log.Warn("power cuts cannot be detected: the kernel's boot id cannot be read", "error", err)
		return ""
	}
	boot := strings.TrimSpace(string(raw))
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return boot
	}
	disk, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return boot // the directory is not on a disk of this machine
	}
	for _, kind := range []string{"ext4", "xfs", "f2fs"} {
		// The kernel makes the directory when the disk is mounted. It never uses an inode number twice in sysfs.
		if unix.Stat(filepath.Join("/sys/fs", kind, filepath.Base(disk)), &st) == nil {
			return fmt.Sprintf("%s, mount %d", boot, st.Ino)
		}
	}
	return boot
}

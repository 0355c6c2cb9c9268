package lifecycle

import (
	"encoding/hex"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Magic numbers of file systems whose statfs id comes from their UUID. The id of
// others, XFS among them, is a device number, which the next boot may give to another
// device.
var uuidStatfs = map[uint32]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, 0x2fc12fc1 /* ZFS */ : true, 0xca451a4e /* bcachefs */ : true,
}

// getFSUUID is FS_IOC_GETFSUUID, which Linux 6.9 and later support.
const getFSUUID = 0x80111500

// inodeOf describes the inode of an open file.
func inodeOf(f *os.File) (inode, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return inode{}, err
	}
	var i inode
	cerr := c.Control(func(fd uintptr) {
		var st unix.Statx_t
		if err = unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
			return
		}
		i.Number = st.Ino
		if st.Mask&unix.STATX_BTIME != 0 {
			i.Birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
		}
		i.System = systemOf(fd)
	})
	if cerr != nil {
		err = cerr
	}
	return i, err
}

// systemOf returns the id of the file system of an open descriptor, or "" if it has none. A
// snapshot of a btrfs or ZFS tree has the same inode numbers but another id.
func systemOf(fd uintptr) string {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(fd), &st); err == nil && uuidStatfs[uint32(st.Type)] && st.Fsid != (unix.Fsid{}) {
		return fmt.Sprintf("%08x%08x", uint32(st.Fsid.Val[0]), uint32(st.Fsid.Val[1]))
	}
	var uuid struct {
		n  uint8
		id [16]byte
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, getFSUUID, uintptr(unsafe.Pointer(&uuid))); errno != 0 || uuid.n != 16 {
		return ""
	}
	return hex.EncodeToString(uuid.id[:])
}

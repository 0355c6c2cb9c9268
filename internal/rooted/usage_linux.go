package rooted

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncFS(dir string) error {
	fd, err := unix.Open(dir, directory|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	return failed("syncfs", dir, unix.Syncfs(fd))
}

func space(dir string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Space{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Space{
		Bytes: int64(st.Blocks) * st.Bsize, Free: int64(st.Bavail) * st.Bsize,
		Files: int64(st.Files), FreeFiles: int64(st.Ffree),
	}, nil
}

package rooted

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return failed("syncfs", dir, err)
	}
	return nil
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

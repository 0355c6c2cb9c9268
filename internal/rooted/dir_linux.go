package rooted

import "golang.org/x/sys/unix"

// OpenDir opens the directory rel below dir with O_PATH, for the caller's *at calls. The caller
// closes it. OpenDir follows no symlink, not even dir itself, and enters no mount.
func OpenDir(dir, rel string) (int, error) {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if rel == "." {
		return top, nil
	}
	defer unix.Close(top)
	return openBeneath(top, rel, unix.O_PATH|unix.O_DIRECTORY)
}

package rooted

import "golang.org/x/sys/unix"

// OpenDir opens the directory rel below dir for the *at calls of the caller, who
// closes it (O_PATH). It follows no symlink, dir's own included, and enters no mount.
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

package hook

import "golang.org/x/sys/unix"

// awaitExit returns when a child process has ended. It does not reap the child.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

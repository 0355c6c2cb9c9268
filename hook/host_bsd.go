//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package hook

import "golang.org/x/sys/unix"

// awaitExit returns when a child process has ended. It does not reap the child. It also returns if the kernel cannot
// watch the child; Run then kills the command.
func awaitExit(pid int) {
	// A signal 0 would not show the end: these systems deliver it to a child that has ended and is not reaped.
	queue, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(queue)
	change, event := make([]unix.Kevent_t, 1), make([]unix.Kevent_t, 1)
	unix.SetKevent(&change[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change[0].Fflags = unix.NOTE_EXIT
	for {
		// If the child has ended already, the event reports an error instead.
		if _, err := unix.Kevent(queue, change, event, nil); err != unix.EINTR {
			return
		}
	}
}

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

const atCWD = ^uintptr(99)

// modeVerbs try every call that can set the setuid or setgid bit on a file of
// one's own.
func modeVerbs() map[string]verb {
	const path = "suid"
	on := func(fn func(fd uintptr) error) verb {
		return simple(func() error {
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			defer os.Remove(path)
			defer f.Close()
			return fn(f.Fd())
		})
	}
	return map[string]verb{
		"suid-fchmod":    on(func(fd uintptr) error { return sys(unix.SYS_FCHMOD, fd, 0o4755) }),
		"suid-fchmodat":  on(func(uintptr) error { return sys(unix.SYS_FCHMODAT, atCWD, cstr(path), 0o4755) }),
		"suid-fchmodat2": on(func(uintptr) error { return sys(452, atCWD, cstr(path), 0o4755, 0) }),
		"sgid-fchmodat":  on(func(uintptr) error { return sys(unix.SYS_FCHMODAT, atCWD, cstr(path), 0o2755) }),
		"suid-open": simple(func() error {
			defer os.Remove(path)
			return closingNR(unix.SYS_OPENAT, atCWD, cstr(path), unix.O_CREAT|unix.O_WRONLY, 0o4755)
		}),
		"suid-mknod": simple(func() error {
			defer os.Remove(path)
			return sys(unix.SYS_MKNODAT, atCWD, cstr(path), unix.S_IFREG|0o4755, 0)
		}),
		"sgid-mkdir": simple(func() error {
			defer os.Remove(path)
			return sys(unix.SYS_MKDIRAT, atCWD, cstr(path), 0o2755)
		}),
	}
}

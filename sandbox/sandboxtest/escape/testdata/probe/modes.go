package main

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const atCWD = ^uintptr(99)

// modeVerbs try every call that can set the setuid or setgid bit on a file of
// one's own, or give it capabilities or another owner.
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
	all := map[string]verb{
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
		"sgid-fchmod": on(func(fd uintptr) error { return sys(unix.SYS_FCHMOD, fd, 0o2755) }),
		"suid-tmpfile": simple(func() error {
			return closingNR(unix.SYS_OPENAT, atCWD, cstr("."), unix.O_TMPFILE|unix.O_RDWR, 0o4755)
		}),
		"suid-map":    simple(mapSUID),
		"setcap-fd":   on(func(fd uintptr) error { return unix.Fsetxattr(int(fd), capability, capabilityV2(), 0) }),
		"setcap-link": on(func(uintptr) error { return unix.Lsetxattr(path, capability, capabilityV2(), 0) }),
		"setcap-own":  on(func(uintptr) error { return unix.Setxattr(path, capability, append(capabilityV3(), 0, 0, 0, 0), 0) }),
		"setcap-at":   on(setcapAt),
		"chown": func(a []string) (string, error) {
			defer os.Remove(path)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return "", err
			}
			return "", os.Lchown(path, atoi(a[0]), atoi(a[1]))
		},
	}
	for name, old := range oldModeVerbs(path) {
		all[name] = on(old)
	}
	return all
}

// capability is the extended attribute that holds the capabilities of a file.
const capability = "security.capability"

// capabilityV2 holds for every user namespace that the file is in, capabilityV3 for that of one user.
func capabilityV2() []byte {
	return append([]byte{1, 0, 0, 2, 1 << unix.CAP_SETUID}, make([]byte, 15)...)
}

func capabilityV3() []byte {
	return append([]byte{1, 0, 0, 3, 1 << unix.CAP_SETUID}, make([]byte, 15)...)
}

func setcapAt(fd uintptr) error {
	value := capabilityV2()
	args := struct {
		value       uint64
		size, flags uint32
	}{uint64(uintptr(unsafe.Pointer(&value[0]))), uint32(len(value)), 0}
	return sys(463, fd, cstr(""), unix.AT_EMPTY_PATH, cstr(capability), uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
}

// mapSUID makes a setuid file and then changes its content through a mapping, which leaves the bit.
func mapSUID() error {
	const path = "suid-mapped"
	defer os.Remove(path)
	if err := errors.Join(os.WriteFile(path, make([]byte, 4096), 0o600), unix.Chmod(path, 0o4755)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m, "#!/bin/sh")
	if err := errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m)); err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeSetuid == 0 {
		err = errors.New("the bit is gone")
	}
	return err
}

package jail

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// secureBits are the securebits of the confined threads: exec by uid 0 grants nothing, and
// capabilities cannot be kept or raised again; all bits are locked. The kernel's fix-up on setuid
// stays on and is locked too: it takes the last capabilities from a child that becomes the tools'
// user.
const secureBits = 1<<0 | 1<<1 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// capset sets the calling thread's permitted and effective capabilities to caps, and clears the
// inheritable and ambient ones.
func capset(caps ...int) error {
	hdr, data := capData(caps)
	return unix.Capset(hdr, &data[0])
}

func capData(caps []int) (*unix.CapUserHeader, *[2]unix.CapUserData) {
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	for _, c := range caps {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	return hdr, data
}

// dropOwn leaves boxd's threads only the capabilities that supervising needs: to signal tools,
// and for the forker to change the user and to lock its own state. An ordinary user's boxd has
// the tools' uid and needs only the latter.
//
// A thread of a shared box that makes or enters the mount namespace of a session needs two more.
// They stay permitted and are never effective, except on such a thread and for that moment. No
// single thread could keep them for the others: the Go runtime makes a thread from any idle one.
func (e *entry) dropOwn() error {
	caps := []int{unix.CAP_SETPCAP}
	if !e.jail.SameUID {
		caps = append(caps, unix.CAP_KILL, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE)
	}
	hdr, data := capData(caps)
	if e.jail.Shared != nil {
		for _, c := range e.forker.keeping() {
			data[c/32].Permitted |= 1 << (c % 32)
		}
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(hdr)
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}

// keeping returns the capabilities with which boxd makes and enters the places of sessions in a shared
// box. An ordinary user's box needs a third one, to search homes for files that path patterns match.
func (f *forker) keeping() []int {
	caps := []int{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT}
	if f.jail.SameUID && len(f.patterns.Patterns)+len(f.patterns.WritePatterns) > 0 {
		caps = append(caps, unix.CAP_DAC_OVERRIDE)
	}
	return caps
}

// keeper makes the capabilities that keeping lists effective on the calling, locked thread (on),
// or no longer effective.
func (f *forker) keeper(on bool) error {
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(hdr, &data[0]); err != nil {
		return err
	}
	for _, c := range f.keeping() {
		data[c/32].Effective &^= 1 << (c % 32)
		if on {
			data[c/32].Effective |= 1 << (c % 32)
		}
	}
	return unix.Capset(hdr, &data[0])
}

// dropAmbient clears the ambient capabilities, which an exec would pass on. Only an ordinary
// user's boxd got some by its own exec, because it does not run as uid 0 of its user namespace;
// every other boxd does, and starts without.
func (e *entry) dropAmbient() error {
	if !e.jail.SameUID {
		return nil
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// unbound empties the bounding set of the calling, locked thread, so that no exec can add a
// capability.
func unbound() error {
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			return nil // c is greater than the last capability that this kernel knows
		} else if err != nil {
			return err
		}
	}
}

// renounce drops every capability of the calling, locked thread except keep, and makes that
// final.
func renounce(keep ...int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return err
	}
	return capset(keep...)
}

// asFileUser runs fn while the calling thread accesses files as a user.
func asFileUser(uid int, fn func() error) error {
	if err := fileIdentity(uid); err != nil {
		return err
	}
	return errors.Join(fn(), fileIdentity(0))
}

// fileIdentity makes the calling thread access files as the tools' user. Its real uid stays
// boxd's, because a tool may signal any thread that has the tools' real uid.
func fileIdentity(uid int) error {
	for _, nr := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
		// These calls return the former id and report no error: the second call reads back what
		// the first has set.
		_, _, _ = syscall.RawSyscall(nr, uintptr(uid), 0, 0)
		if now, _, _ := syscall.RawSyscall(nr, ^uintptr(0), 0, 0); now != uintptr(uid) {
			return unix.EPERM
		}
	}
	return nil
}

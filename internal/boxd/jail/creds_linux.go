package jail

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// secureBits are the securebits of the confined threads: an exec by uid 0 grants no capability, and
// no ambient capability can be raised. SECBIT_NO_SETUID_FIXUP is off, so a child that changes to the
// tools' user loses its last capabilities. All these bits are locked.
const secureBits = 1<<0 | 1<<1 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// capset gives the calling thread caps as its permitted and effective capabilities, and no inheritable or ambient ones.
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

// dropOwn takes from all threads of boxd the capabilities that they no longer need. They keep
// CAP_SETPCAP, with which a confined thread locks its own state. If boxd has another uid than the
// tools, they also keep those to signal tools, to change the user, and to access and chown files of others.
//
// A thread of a shared box that makes or enters the mount namespace of a session needs more (see
// keeping). These stay permitted on all threads, because the Go runtime can start a new thread from
// any thread. They are effective only on a thread that makes or enters a place, as long as it does.
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

// keeping returns the capabilities with which boxd makes and enters the places of sessions in a
// shared box. If boxd has the uid of the tools and there are path patterns, it also needs
// CAP_DAC_OVERRIDE, to search homes for files that match the patterns.
func (f *forker) keeping() []int {
	caps := []int{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT}
	if f.jail.SameUID && len(f.patterns.Patterns)+len(f.patterns.WritePatterns) > 0 {
		caps = append(caps, unix.CAP_DAC_OVERRIDE)
	}
	return caps
}

// keeper makes the capabilities of keeping effective (on) or ineffective on the calling thread, which is locked.
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

// dropAmbient clears the ambient capabilities of all threads, because an exec would pass them on.
// Only a boxd with the uid of the tools has any: it got its capabilities through its own exec as
// ambient ones, because it is not uid 0 in its user namespace.
func (e *entry) dropAmbient() error {
	if !e.jail.SameUID {
		return nil
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// unbound empties the bounding set of the calling thread, which is locked, so that no exec can add a capability.
func unbound() error {
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			return nil // c is greater than the last capability that this kernel knows
		} else if err != nil {
			return err
		}
	}
}

// renounce drops all capabilities of the calling thread, which is locked, except keep. The thread and
// its children cannot get the others back.
func renounce(keep ...int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return err
	}
	return capset(keep...)
}

// asFileUser runs fn while the calling thread accesses files with the given uid; afterwards it uses uid 0 again.
func asFileUser(uid int, fn func() error) error {
	if err := fileIdentity(uid); err != nil {
		return err
	}
	return errors.Join(fn(), fileIdentity(0))
}

// fileIdentity makes the calling thread access files with uid as its user and group id. The thread's
// real uid stays that of boxd, because a tool may signal any thread that has the tools' real uid.
func fileIdentity(uid int) error {
	for _, nr := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
		// These calls return the former id and never an error. The second call, with an invalid id, only reads the id.
		_, _, _ = syscall.RawSyscall(nr, uintptr(uid), 0, 0)
		if now, _, _ := syscall.RawSyscall(nr, ^uintptr(0), 0, 0); now != uintptr(uid) {
			return unix.EPERM
		}
	}
	return nil
}

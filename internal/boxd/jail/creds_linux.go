package jail

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Securebits of the confined threads: exec by uid 0 grants nothing, capabilities
// are not kept and not raised again, all of it for good. The fix-up on setuid is
// locked as it is, on: it takes the last capabilities from a child that becomes
// the tools' user.
const secureBits = 1<<0 | 1<<1 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// capset sets the calling thread's permitted and effective capabilities to the
// given ones; inheritable and ambient ones are gone.
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

// dropOwn leaves boxd's threads with what supervising takes: signals to tools,
// and for the forker the change of user and the locking of its own state. An
// ordinary user's boxd has the tools' uid and needs nothing but the latter.
func (e *entry) dropOwn() error {
	caps := []int{unix.CAP_SETPCAP}
	if !e.jail.SameUID {
		caps = append(caps, unix.CAP_KILL, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE)
	}
	hdr, data := capData(caps)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(hdr)
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}

// dropAmbient keeps what an exec was to hand on to boxd from being handed on
// further. Only an ordinary user's boxd was handed something: a new user namespace
// begins with nothing, and the first uid of it needs nothing.
func (e *entry) dropAmbient() error {
	if !e.jail.SameUID {
		return nil
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// unbound empties the calling, locked thread's bounding set: no exec gives what is
// not in it.
func unbound() error {
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			return nil // one past the last capability this kernel knows
		} else if err != nil {
			return err
		}
	}
}

// renounce takes everything from the calling, locked thread but the given
// capabilities, and makes it final.
func renounce(keep ...int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return err
	}
	return capset(keep...)
}

// fileIdentity makes the calling thread touch files as the tools' user. The real
// uid stays boxd's: a tool may signal any thread that has its own.
func fileIdentity(uid int) error {
	for _, nr := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
		// These calls answer with the former id and never fail loudly: the second
		// one reads back what the first has set.
		_, _, _ = syscall.RawSyscall(nr, uintptr(uid), 0, 0)
		if now, _, _ := syscall.RawSyscall(nr, ^uintptr(0), 0, 0); now != uintptr(uid) {
			return unix.EPERM
		}
	}
	return nil
}

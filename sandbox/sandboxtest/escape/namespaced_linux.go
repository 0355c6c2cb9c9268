package escape

import (
	"os"
	"syscall"
)

// nobody is an ordinary user of every machine.
const nobody = 65_534

// ordinary returns attributes that start a process as the user nobody.
func ordinary() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// namespaced returns attributes that start a process in new namespaces of its own, in which it is root; on the
// host it has no rights of root.
func namespaced() *syscall.SysProcAttr {
	id := func(n int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: n, Size: 1}} }
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings: id(os.Geteuid()), GidMappings: id(os.Getegid()),
	}
}

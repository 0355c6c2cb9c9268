package modes

import "golang.org/x/sys/unix"

// oldCalls are the older system calls that set a mode, as open and chmod. Newer architectures do not have them.
var oldCalls = []tryCall{
	{"chmod", unix.SYS_CHMOD, [6]uintptr{nowhere, setUID}},
	{"chmod", unix.SYS_CHMOD, [6]uintptr{nowhere, setGID}},
	{"open", unix.SYS_OPEN, [6]uintptr{nowhere, creates, setUID}},
	{"open", unix.SYS_OPEN, [6]uintptr{nowhere, creates, setGID}},
	{"creat", unix.SYS_CREAT, [6]uintptr{nowhere, setUID}},
	{"creat", unix.SYS_CREAT, [6]uintptr{nowhere, setGID}},
	{"mkdir", unix.SYS_MKDIR, [6]uintptr{nowhere, setGID}},
	{"mknod", unix.SYS_MKNOD, [6]uintptr{nowhere, unix.S_IFREG | setUID}},
	{"mknod", unix.SYS_MKNOD, [6]uintptr{nowhere, unix.S_IFCHR | 0o600}},
}

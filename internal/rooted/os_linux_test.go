package rooted

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func asUser(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func bind(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND, "") }

func unbind(at string) { _ = unix.Unmount(at, unix.MNT_DETACH) }

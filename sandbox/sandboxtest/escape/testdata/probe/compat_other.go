//go:build !amd64

package main

import "syscall"

func int80() error { return syscall.ENOSYS }

func modifyLDT() error { return syscall.ENOSYS }

func oldModeVerbs(string) map[string]func(uintptr) error {
	all := map[string]func(uintptr) error{}
	for _, name := range []string{"suid-chmod", "suid-creat", "suid-old-open", "suid-old-mknod", "sgid-old-mkdir", "suid-int80"} {
		all[name] = func(uintptr) error { return syscall.ENOSYS }
	}
	return all
}

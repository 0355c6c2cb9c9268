//go:build !amd64

package main

import "syscall"

func int80() error { return syscall.ENOSYS }

func modifyLDT() error { return syscall.ENOSYS }

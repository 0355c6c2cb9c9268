package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// int80 calls getpid through the system call gate of 32-bit programs. There the numbers mean
// other calls, so a filter that ignores this gate can be bypassed.
func int80() error {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	copy(page, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3}) // mov eax, 20; int 0x80; ret
	code := &struct{ at uintptr }{uintptr(unsafe.Pointer(&page[0]))}
	call := *(*func() int32)(unsafe.Pointer(&code))
	if got := call(); got < 0 {
		return syscall.Errno(-got)
	}
	return nil
}

// modifyLDT reads this process's local descriptor table, which is empty.
func modifyLDT() error {
	var buf [64]byte
	return sys(unix.SYS_MODIFY_LDT, 0, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
}

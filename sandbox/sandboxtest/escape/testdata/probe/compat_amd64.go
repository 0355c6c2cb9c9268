package main

import (
	"encoding/binary"
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

// oldModeVerbs are calls that only older architectures have, on a file.
func oldModeVerbs(path string) map[string]func(uintptr) error {
	again := func(do func() error) func(uintptr) error {
		return func(uintptr) error {
			_ = unix.Unlink(path)
			return do()
		}
	}
	return map[string]func(uintptr) error{
		"suid-chmod":     func(uintptr) error { return sys(unix.SYS_CHMOD, cstr(path), 0o4755) },
		"suid-creat":     again(func() error { return closingNR(unix.SYS_CREAT, cstr(path), 0o4755) }),
		"suid-old-open":  again(func() error { return closingNR(unix.SYS_OPEN, cstr(path), unix.O_CREAT|unix.O_WRONLY, 0o4755) }),
		"suid-old-mknod": again(func() error { return sys(unix.SYS_MKNOD, cstr(path), unix.S_IFREG|0o4755, 0) }),
		"sgid-old-mkdir": again(func() error { return sys(unix.SYS_MKDIR, cstr(path), 0o2755) }),
		"suid-int80":     func(uintptr) error { return chmod32(path, 0o4755) },
	}
}

// chmod32 calls chmod through the system call gate of 32-bit programs.
func chmod32(path string, mode uint32) error {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_32BIT)
	if err != nil {
		return err
	}
	copy(page[1024:], path)
	code := []byte{0xb8, 15, 0, 0, 0, 0xbb} // mov eax, 15; mov ebx, path; mov ecx, mode; int 0x80; ret
	code = binary.LittleEndian.AppendUint32(code, uint32(uintptr(unsafe.Pointer(&page[1024]))))
	code = binary.LittleEndian.AppendUint32(append(code, 0xb9), mode)
	copy(page, append(code, 0xcd, 0x80, 0xc3))
	entry := &struct{ at uintptr }{uintptr(unsafe.Pointer(&page[0]))}
	call := *(*func() int32)(unsafe.Pointer(&entry))
	if got := call(); got < 0 {
		return syscall.Errno(-got)
	}
	return nil
}

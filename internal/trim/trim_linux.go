// Package trim returns memory to the system that a process needed only to start.
//
// boxd and the server import it; it imports the standard library and x/sys. Invariant: memory that
// it returns is read again unchanged when it is used.
package trim

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory returns free heap to the system, and drops the pages of the program itself, which are read
// from the page cache when used again. It takes some milliseconds, including a garbage collection.
// Safe for concurrent use.
func Memory() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for scan := bufio.NewScanner(maps); scan.Scan(); {
		from, to, ok := programPages(scan.Text(), exe)
		if !ok {
			continue
		}
		// This is only a hint: pages that the kernel does not drop stay.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}

// programPages returns the address range of a line of /proc/self/maps if it maps the program
// without write access, so that its pages can be read again unchanged.
func programPages(line, exe string) (from, to uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[5] != strings.Fields(exe)[0] || f[1] != "r-xp" && f[1] != "r--p" {
		return 0, 0, false
	}
	_, err := fmt.Sscanf(f[0], "%x-%x", &from, &to)
	return from, to, err == nil && to > from
}

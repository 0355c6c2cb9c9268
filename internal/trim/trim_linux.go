// Package trim gives back memory that a process needed to start and needs no more.
//
// boxd and the server import it; it imports the standard library and x/sys. Invariant: what
// it gives back comes again, as it was, when it is used.
package trim

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory gives back free heap, and the pages of the program itself, which come back from
// the page cache when they are used again. It takes some milliseconds, a garbage collection
// among them. Safe for concurrent use.
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
		// Only a hint: what the kernel does not drop stays.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}

// programPages finds the mappings of the program that nothing can have written
// to: a dropped page is read again as it was.
func programPages(line, exe string) (from, to uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[5] != strings.Fields(exe)[0] || f[1] != "r-xp" && f[1] != "r--p" {
		return 0, 0, false
	}
	_, err := fmt.Sscanf(f[0], "%x-%x", &from, &to)
	return from, to, err == nil && to > from
}

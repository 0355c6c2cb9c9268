// Package trim gives memory that a process needed only to start back to the system.
//
// boxd and the server import it; it imports the standard library and golang.org/x/sys. Invariant: it gives back only
// free memory, and pages of the program that the kernel can read again unchanged from the program's file.
package trim

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory collects garbage, gives the free heap back to the system, and drops the pages of the program itself from the
// process: the kernel maps them again from the program's file when they are used. It takes some milliseconds. Safe for
// concurrent use.
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
		// An error is ignored: the pages then stay in memory, which does no harm.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}

// programPages returns the address range of a line of /proc/self/maps. ok is true if the line maps the program's file
// without write access: then the pages can be read again unchanged.
func programPages(line, exe string) (from, to uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[5] != strings.Fields(exe)[0] || f[1] != "r-xp" && f[1] != "r--p" {
		return 0, 0, false
	}
	_, err := fmt.Sscanf(f[0], "%x-%x", &from, &to)
	return from, to, err == nil && to > from
}

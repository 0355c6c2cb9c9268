package boxd

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// trim gives back the memory that an idle boxd does not need: free heap, and the
// pages of its own program, which come back from the page cache when they are
// used again. An idle box is what most boxes are.
func trim() {
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

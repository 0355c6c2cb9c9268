package lifecycle

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// NoDumps keeps the memory of this process, which holds keys and tokens, out of core
// files. It sets the hard limit of their size to 0. The kernel hands core files to some
// programs whatever the limit is, so it also takes all memory out of them. Programs
// that the process starts inherit both.
//
// As root the process also becomes undumpable. An ordinary user's server stays
// dumpable: the files in /proc of an undumpable process belong to root, also those of
// the child whose user namespace the server has to map, so it could start no box.
func NoDumps() error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	filter := os.WriteFile("/proc/self/coredump_filter", []byte("0"), 0)
	if errors.Is(filter, os.ErrNotExist) {
		filter = nil // the kernel was built without core files
	}
	err = errors.Join(err, filter)
	if os.Geteuid() == 0 {
		err = errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	}
	return err
}

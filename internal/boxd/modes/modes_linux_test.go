package modes

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHZ8_ProofNoticesEachCall: each call of the proof, without a filter, is an error of the proof, and none of them changes
// anything; so are the calls on a real file.
func TestHZ8_ProofNoticesEachCall(t *testing.T) {
	for _, c := range append(slices.Clone(specialCalls), toolCalls...) {
		_, _, errno := syscall.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		switch {
		case errno == unix.ENOSYS, c.nr == unix.SYS_IO_URING_SETUP && errno == unix.EPERM:
			t.Logf("this kernel does not have %s", c.name)
		case errno == 0:
			t.Errorf("%s%x succeeded", c.name, c.args)
		case c.try() == nil:
			t.Errorf("%s%x: the proof takes %v for a refusal", c.name, c.args, errno)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root gives files capabilities")
	}
	path := filepath.Join(t.TempDir(), "file")
	for name, do := range map[string]func(fd int) error{
		"fchmod":    func(fd int) error { return held("fchmod", unix.Fchmod(fd, setUID)) },
		"fchmodat2": func(fd int) error { return held("fchmodat2", fchmodat2(fd, setGID)) },
		"fsetxattr": func(fd int) error {
			return held("fsetxattr", unix.Fsetxattr(fd, "security.capability", capabilities()[0], 0))
		},
		"namespaced": func(fd int) error {
			return held("fsetxattr", unix.Fsetxattr(fd, "security.capability", capabilities()[1], 0))
		},
		"a file": tryFile,
	} {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if do(int(f.Fd())) == nil {
			t.Errorf("%s: the proof takes it for a refusal", name)
		}
		_ = f.Close()
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := setxattrat(int(f.Fd()), capabilities()[0]); err != syscall.Errno(0) && err != unix.ENOSYS {
		t.Errorf("setxattrat: %v", err)
	} else if err != unix.ENOSYS && held("setxattrat", err) == nil {
		t.Error("setxattrat: the proof takes it for a refusal")
	}
}

//go:build linux

package jail

import (
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// numbers returns the calls of an architecture by name, including those younger than
// the library's table.
func numbers(info *arch.Info) map[string]int {
	out := map[string]int{}
	for name, nr := range newCalls {
		out[name] = nr
	}
	for name, nr := range info.SyscallNames {
		out[name] = nr
	}
	return out
}

// TestSeccompAllowsByList: on every architecture, every number that no list names gets
// the answer for an unknown call, whatever its arguments are.
func TestSeccompAllowsByList(t *testing.T) {
	args := [][6]uint64{{}, {1, 1, 1, 1, 1, 1}, {high, high, high, high}, {^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}
	for _, c := range policyCases {
		args = append(args, c.args)
	}
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		want := map[int]string{}
		for name, nr := range numbers(info) {
			switch {
			case slices.Contains(allowed, name):
				want[nr] = "allow"
			case slices.Contains(refused, name):
				want[nr] = "EPERM"
			case (&generator{}).looked()[name] != nil:
				want[nr] = "by arguments"
			}
		}
		for _, v := range []struct{ clone3, openat2 bool }{{false, false}, {true, false}, {false, true}} {
			raw, err := program(info, v.clone3, v.openat2)
			if err != nil {
				t.Fatal(err)
			}
			if len(raw) > 400 {
				t.Errorf("%s: the program has %d instructions", info.Name, len(raw))
			}
			prog := filters(raw)
			for nr := range 3000 {
				want := want[nr]
				switch {
				case nr == newCalls["clone3"] && v.clone3, nr == newCalls["openat2"] && v.openat2:
					want = "allow"
				case want == "by arguments":
					continue
				case want == "":
					want = "ENOSYS"
				}
				for _, a := range args {
					if got := verdict(run(t, prog, call{uint32(nr), uint32(info.ID), a})); got != want {
						t.Fatalf("%s: call %d%#x: %s, want %s", info.Name, nr, a, got, want)
					}
				}
			}
			for _, nr := range []uint32{1 << 29, 1<<30 - 1, 1 << 30, 1<<30 | 1, 1 << 31, 1<<32 - 1} {
				if got := verdict(run(t, prog, call{nr, uint32(info.ID), [6]uint64{}})); got != "ENOSYS" {
					t.Errorf("%s: call %#x: %s", info.Name, nr, got)
				}
			}
		}
	}
}

// TestSeccompListsAreWhole: every name of the lists exists on some architecture and is
// in one list only; every call that the library knows is in a list or left out on
// purpose.
func TestSeccompListsAreWhole(t *testing.T) {
	amd, arm := numbers(arch.X86_64), numbers(arch.AARCH64)
	seen := map[string]bool{}
	names := slices.Concat(allowed, absent, []string{"clone3", "openat2"})
	for name := range (&generator{}).looked() {
		names = append(names, name)
	}
	for _, name := range names {
		_, a := amd[name]
		_, b := arm[name]
		if !a && !b {
			t.Errorf("%s is no call", name)
		}
	}
	for _, name := range append(names, refused...) {
		if seen[name] {
			t.Errorf("%s is in the lists twice", name)
		}
		seen[name] = true
	}
	// No present kernel implements these, or no 64-bit program calls them.
	never := []string{
		"afs_syscall", "epoll_ctl_old", "epoll_wait_old", "get_thread_area", "set_thread_area", "getpmsg", "putpmsg",
		"security", "tuxcall", "vserver", "arch_specific_syscall",
	}
	// The library lists these for arm64; only 32-bit machines have them.
	for name, nr := range numbers(arch.AARCH64) {
		if nr >= 403 && nr <= 423 {
			never = append(never, name)
		}
	}
	for _, calls := range []map[string]int{amd, arm} {
		for name, nr := range calls {
			if !seen[name] && !slices.Contains(never, name) {
				t.Errorf("%s (%d) is in no list", name, nr)
			}
		}
	}
	if unix.SYS_CLONE3 != newCalls["clone3"] || unix.SYS_MSEAL != newCalls["mseal"] {
		t.Error("the numbers are others")
	}
}

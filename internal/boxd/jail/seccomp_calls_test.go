//go:build linux

package jail

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// lastCall is above the youngest call of any present kernel.
const lastCall = 520

// TestEveryCallMeetsItsVerdict makes every system call under the filters of a tool and
// compares the kernel's answer with the generated program: refused calls fail with that
// error, and allowed ones give the same answer as without filters.
func TestEveryCallMeetsItsVerdict(t *testing.T) {
	f := confined(t, wire.Jail{ToolUID: 61_234}, none())
	probe := testkit.Program(t, "./sandbox/sandboxtest/escape/testdata/probe")
	out, code, err := start(t, f, boxd.StartSpec{Path: probe, Argv: []string{"probe", "every-call", "0", strconv.Itoa(lastCall)}, Dir: "/", Env: []string{"PATH=/bin"}})
	if err != nil || code != 0 || !strings.HasPrefix(out, "ok ") {
		t.Fatal(err, code, out)
	}
	got := map[int]string{}
	for _, field := range strings.Fields(out)[1:] {
		nr, name, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(nr)
		if err != nil {
			t.Fatalf("%q in %q", field, out)
		}
		got[n] = name
	}
	id := map[string]*arch.Info{"amd64": arch.X86_64, "arm64": arch.AARCH64}[runtime.GOARCH]
	bad := ^uint64(0)
	refusals := 0
	for nr := range lastCall {
		c := call{uint32(nr), uint32(id.ID), [6]uint64{bad, bad, bad, bad, bad, bad}}
		want := verdict(run(t, noClone3, c))
		if want == "allow" {
			want = verdict(run(t, seccompProgramClone3, c))
		}
		switch {
		case want != "allow":
			refusals++
			if kernelPasses(nr) {
				continue
			}
			if got[nr] != want {
				t.Errorf("call %d: %q, the program says %s", nr, got[nr], want)
			}
		case got[nr] != "":
			if free := withoutFilter(t, probe, nr); free != got[nr] {
				t.Errorf("call %d: %q, the program lets it pass, and without filters it is %q", nr, got[nr], free)
			}
		}
	}
	if refusals < 200 || len(got) < refusals-2 {
		t.Errorf("%d numbers are refused by the program, %d were", refusals, len(got))
	}
}

// kernelPasses reports calls that present kernels run without asking a filter: those
// that kernel probes put into programs. They do nothing elsewhere.
func kernelPasses(nr int) bool { return runtime.GOARCH == "amd64" && (nr == 335 || nr == 336) }

// withoutFilter returns the result of a call without filters.
func withoutFilter(t *testing.T, probe string, nr int) string {
	t.Helper()
	cmd := exec.Command(probe, "every-call", strconv.Itoa(nr), strconv.Itoa(nr+1))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65_534, Gid: 65_534}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("call %d without filters: %v", nr, err)
	}
	_, name, _ := strings.Cut(strings.TrimSpace(string(out)), fmt.Sprint(nr, "="))
	return name
}

// BenchmarkFilters measures a call under the filters of a tool: one that always passes,
// and one with inspected arguments.
func BenchmarkFilters(b *testing.B) {
	for _, filtered := range []bool{false, true} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread ends with its filters
			name := "without"
			if filtered {
				name = "filters"
				if err := filterThread(seccompProgramClone3); err != nil {
					b.Error(err)
					return
				}
				if err := loadFilter(noClone3); err != nil {
					b.Error(err)
					return
				}
			}
			for call, do := range map[string]func(){
				"getppid": func() { _, _, _ = syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0) },
				"openat":  func() { _, _, _ = syscall.RawSyscall6(unix.SYS_OPENAT, ^uintptr(0), 0, 0, 0, 0, 0) },
				"fchmod":  func() { _, _, _ = syscall.RawSyscall(unix.SYS_FCHMOD, ^uintptr(0), 0, 0) },
				"socket":  func() { _, _, _ = syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, 99, 0) },
			} {
				began := time.Now()
				for range b.N {
					do()
				}
				b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(b.N), "ns/"+call+"-"+name)
			}
		}()
		<-done
	}
}

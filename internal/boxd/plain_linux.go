package boxd

import (
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// PlainForker is the host driver's Forker: it starts processes without isolation, under boxd's
// own identity.
type PlainForker struct {
	gate sync.RWMutex
	turn sync.Mutex
	held bool
}

// NewPlainForker makes a PlainForker.
func NewPlainForker() *PlainForker { return &PlainForker{} }

// Fork starts spec's process in a session of its own. It ignores spec.Layers: without a jail
// nothing can enforce them, and for trusted agents the policy judges calls by their text only.
func (f *PlainForker) Fork(spec StartSpec) (int, error) {
	f.gate.RLock()
	defer f.gate.RUnlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	UsualTimers()
	defer LateTimers()
	return syscall.ForkExec(spec.Path, spec.Argv, &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env,
		Files: []uintptr{spec.Stdin.Fd(), spec.Stdout.Fd(), spec.Stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: spec.TTY, Ctty: 0},
	})
}

// Do runs fn.
func (f *PlainForker) Do(fn func() error) error { return fn() }

// Gate blocks Fork (true) or allows it again (false).
func (f *PlainForker) Gate(closed bool) {
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.held == closed {
		return
	}
	f.held = closed
	if closed {
		f.gate.Lock()
	} else {
		f.gate.Unlock()
	}
}

// Counter always returns false: a host process has no cgroup counters.
func (f *PlainForker) Counter(string) (string, bool) { return "", false }

// usualSlack is the kernel's default timer slack, by which it may delay a process's timers, in ns.
const usualSlack = 50_000 // ns

// UsualTimers gives the calling thread the default timer slack, which the processes that it forks
// inherit; a driver may have started boxd with a larger one. The call cannot fail, and does not
// move its goroutine to another thread.
func UsualTimers() {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0, 0)
}

// LateTimers undoes UsualTimers for the calling thread.
func LateTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }

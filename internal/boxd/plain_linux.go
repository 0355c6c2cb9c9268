package boxd

import (
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// PlainForker starts processes without isolation: the host driver's forker.
// Tools have boxd's own identity.
type PlainForker struct {
	gate sync.RWMutex
	turn sync.Mutex
	held bool
}

// NewPlainForker makes a PlainForker.
func NewPlainForker() *PlainForker { return &PlainForker{} }

// Fork starts spec in a session of its own. It ignores spec.Layers: without a jail
// nothing enforces them, and the policy judges a trusted agent's calls by their text.
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

// Gate holds back (true) or admits (false) Fork.
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

// Counter knows no counters: a host process has no box.
func (f *PlainForker) Counter(string) (string, bool) { return "", false }

// usualSlack is how late the kernel wakes a process that says nothing of it.
const usualSlack = 50_000 // ns

// UsualTimers gives the calling thread, and so what it forks, the timers of an
// ordinary process: a driver may have started boxd with late ones. It cannot fail,
// and does not leave the thread.
func UsualTimers() {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0, 0)
}

// LateTimers takes UsualTimers back, for the calling thread.
func LateTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }

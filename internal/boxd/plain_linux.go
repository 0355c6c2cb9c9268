package boxd

import (
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// PlainForker is the Forker of the driver host: it starts processes without isolation, with boxd's identity.
type PlainForker struct {
	gate sync.RWMutex
	turn sync.Mutex
	held bool
}

// NewPlainForker makes a PlainForker.
func NewPlainForker() *PlainForker { return &PlainForker{} }

// Fork starts the process of spec in a Unix session of its own. It ignores spec.Layers, because nothing
// can enforce path rules without a jail. Agents in such boxes are trusted.
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

// Gate makes calls of Fork wait (true) or lets them go on (false).
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

// Counter always returns false: the box of the driver host has no cgroup of its own.
func (f *PlainForker) Counter(string) (string, bool) { return "", false }

// usualSlack is the kernel's default timer slack in ns: by how much the kernel may delay the timers of a thread.
const usualSlack = 50_000

// UsualTimers gives the calling thread the kernel's default timer slack, because a driver may have started
// boxd with a larger one. Processes that the thread forks inherit the slack. The system call cannot
// fail, and it is a raw one, so the Go runtime does not move the goroutine to another thread.
func UsualTimers() {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0, 0)
}

// LateTimers gives the calling thread the timer slack back with which it was created.
func LateTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/files"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// standing is how long after its start boxd uses up to two processors.
	standing = 250 * time.Millisecond
	// memoryGoal is the memory limit of the Go runtime in bytes: near it, the runtime collects garbage more often.
	memoryGoal = 24 << 20
)

func run() error {
	// Do this first: descriptors that the driver has left open must not reach a child (HZ-9).
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmtError("close-on-exec", err)
	}
	var threads *jail.Threads
	if os.Getpid() == 1 {
		threads = jail.Begin() // boxd will enter a jail
	}
	go warmHello()
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memoryGoal)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	holdSignals()

	c := wire.NewControl(wire.ControlFD)
	cfg, forker, st, err := begin(c, threads)
	if errors.Is(err, io.EOF) {
		return nil // the server went away, or no longer needs this box
	}
	var srv *boxd.Server
	var l net.Listener
	if err == nil {
		srv, l, err = serve(cfg, forker, st)
	}
	if err != nil {
		st.Err = wire.AsError(err)
	}
	// Ignore an error of reporting the status to the server. If err is set, boxd ends below and the
	// server sees the closed socket; else the server needs no report or is gone, and the box goes on.
	_ = c.Tell(st)
	c.Close()
	if err != nil {
		return err
	}
	// After standing mostly the tools have work, and not boxd: a second processor for boxd would
	// cost more time than it saves.
	time.AfterFunc(standing, func() { runtime.GOMAXPROCS(1) })
	boxd.LateTimers()
	return srv.Serve(context.Background(), l)
}

// begin receives the configuration, enters the jail if there is one, and waits for the Claim if the
// configuration names no box. It returns io.EOF if the driver closed the control socket before it named
// a box: boxd is then not needed. It also returns io.EOF after it has served Config.Lend.
func begin(c *wire.Control, threads *jail.Threads) (cfg *wire.Config, forker boxd.Forker, st wire.JailStatus, err error) {
	if cfg, err = c.Config(); err != nil {
		return nil, nil, st, err
	}
	if cfg.Lend != nil {
		return nil, nil, st, lend(c, cfg.Lend)
	}
	if cfg.Listener == 0 {
		return nil, nil, st, holdfast.Errorf(holdfast.KindInvalid, "config", "the configuration that boxd received names no listener socket")
	}
	if cfg.StateFD > 0 {
		cfg.State = fmt.Sprintf("/proc/self/fd/%d", cfg.StateFD)
	}
	if cfg.Umask != nil {
		// Set the umask at the end of begin. It is for the threads that share it: those that run file operations and,
		// without a jail, those that fork.
		defer unix.Umask(int(cfg.Mask()))
	}
	if cfg.Jail == nil {
		return cfg, boxd.NewPlainForker(), st, nil
	}
	forker, st.InForce, st.Missing, err = jail.Enter(cfg, threads)
	if err != nil {
		return nil, nil, st, err
	}
	st.Walls = cfg.Jail.Built
	cfg.Jail.Mounts, cfg.Jail.Walls, cfg.Jail.Built = nil, nil, nil
	if cfg.Box == "" {
		err = stand(c, cfg, &st)
	}
	return cfg, forker, st, err
}

// lend serves wire.Config.Lend: it clones the mount and sends it. It then returns io.EOF, because this boxd has no other
// work.
func lend(c *wire.Control, m *wire.Mount) error {
	fd, err := jail.OpenTree(*m)
	if err == nil {
		err = c.Lend(wire.JailStatus{}, fd)
	}
	if err != nil {
		return fmtError("lend", err)
	}
	return io.EOF
}

// serve makes the Server and the listener. It does not accept connections yet: boxd first reports to the driver.
func serve(cfg *wire.Config, forker boxd.Forker, st wire.JailStatus) (*boxd.Server, net.Listener, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, nil, fmtError("dumpable", err)
	}
	hands, err := boxd.NewOSHands(forker)
	if err != nil {
		return nil, nil, err
	}
	fs := files.New(files.Config{Workspace: cfg.Workspace, Home: cfg.Home, Umask: cfg.Umask, Proc: cfg.Jail == nil})
	srv, err := boxd.New(boxd.Config{
		Config: *cfg, Hands: hands, InForce: st.InForce, Missing: st.Missing,
		Files: fs, Scoped: func(s wire.Scope) boxd.FileOps { return fs.Within(s) }, Watch: fs.Watch,
	})
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(cfg.Listener), "listener")
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		return nil, nil, fmtError("listener", err)
	}
	if ul, ok := l.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false) // the driver made the socket's path, and removes it
	}
	return srv, l, nil
}

func usualTimers() { boxd.UsualTimers() }

func fmtError(what string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "boxd", "boxd cannot start, the step that failed is %s: %w", what, err)
}

// holdSignals prevents signals from ending boxd, as far as possible, because a process of the box must not
// end the box. It does not ignore the signals, because children would inherit that.
//
// If boxd is the first process of its pid namespace, the kernel protects it from signals with a default
// action that ends a process: there holdSignals restores the default action of most signals. Otherwise,
// and for signals that the Go runtime itself raises, it installs a handler. Handlers for all signals would
// take a third of the time in which a box starts.
func holdSignals() {
	first := os.Getpid() == 1
	var held []os.Signal
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, // no process can catch these two
			unix.SIGURG, unix.SIGCHLD, unix.SIGPROF, unix.SIGCONT, // harmless: ignored by default, or used by the Go runtime
			32, 33, 34: // the Go runtime leaves them to C libraries; PID 1 never gets them from processes of its own box
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGSYS:
			held = append(held, n)
		default:
			if !first || !byDefault(n) {
				held = append(held, n)
			}
		}
	}
	ch := make(chan os.Signal, 16)
	signal.Notify(ch, held...)
	go func() {
		for range ch {
		}
	}()
}

// byDefault restores a signal's default action.
func byDefault(n syscall.Signal) bool {
	var action [4]uint64 // the kernel's sigaction: handler SIG_DFL, no flags, no mask
	_, _, errno := unix.Syscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	return errno == 0
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/files"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

const (
	configFD = 3
	// standing is when a box that was started has all that comes with the start
	// behind it.
	standing  = 250 * time.Millisecond
	maxConfig = 1 << 20
	// memoryGoal is what the heap is kept below where that is possible.
	memoryGoal = 24 << 20
)

func run() error {
	// Descriptors first: whatever the driver left open stays with boxd (HZ-9).
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmtError("close-on-exec", err)
	}
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memoryGoal)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	holdSignals()

	cfg, forker, inForce, missing, err := begin()
	if errors.Is(err, io.EOF) && isReady() {
		return nil // the server needs no more box
	}
	if err != nil {
		return err
	}
	srv, l, err := serve(cfg, forker, inForce, missing)
	jail.Ready(cfg, inForce, missing, err)
	if err != nil {
		return err
	}
	// Once it stands, the box' processes have work, not boxd: a second thread that
	// looks for Go code to run costs more than it does.
	time.AfterFunc(standing, func() { runtime.GOMAXPROCS(1) })
	return srv.Serve(context.Background(), l)
}

// begin takes the configuration and enters the jail, if there is one.
func begin() (cfg *wire.Config, forker boxd.Forker, inForce, missing []string, err error) {
	if isReady() {
		return stand()
	}
	if cfg, err = readConfig(); err != nil {
		return nil, nil, nil, nil, err
	}
	if cfg.Jail == nil {
		return cfg, boxd.NewPlainForker(), nil, nil, nil
	}
	forker, inForce, missing, err = jail.Enter(cfg)
	return cfg, forker, inForce, missing, err
}

// serve makes all that a server needs, so that a driver that waits is told
// whether there will be one.
func serve(cfg *wire.Config, forker boxd.Forker, inForce, missing []string) (*boxd.Server, net.Listener, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, nil, fmtError("dumpable", err)
	}
	hands, err := boxd.NewOSHands(forker)
	if err != nil {
		return nil, nil, err
	}
	fs := files.New(files.Config{Workspace: cfg.Workspace, Home: cfg.Home})
	srv, err := boxd.New(boxd.Config{
		Config: *cfg, Hands: hands, InForce: inForce, Missing: missing,
		Files: fs, Scoped: func(s wire.Scope) boxd.FileOps { return fs.Within(s) },
	})
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(cfg.ListenFD), "listener")
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		return nil, nil, fmtError("listener", err)
	}
	if ul, ok := l.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false) // its path belongs to the driver
	}
	return srv, l, nil
}

func fmtError(what string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, what, "%w", err)
}

func readConfig() (*wire.Config, error) {
	f := os.NewFile(configFD, "config")
	if f == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "descriptor %d is not open", configFD).
			WithHint("boxd is started by holdfast, not by hand")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfig))
	_ = f.Close()
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "cannot read descriptor %d: %w", configFD, err).
			WithHint("boxd is started by holdfast, not by hand")
	}
	var cfg wire.Config
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&cfg); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "%s: %s", holdfast.Quote(string(b)), err.Error())
	}
	if cfg.ListenFD <= configFD {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "listen_fd %d is not an inherited listener", cfg.ListenFD)
	}
	return &cfg, nil
}

// holdSignals keeps every signal that can be held from ending boxd: a process of
// the box must not end the box. They are not ignored, because children inherit
// what is ignored.
//
// The first process of a pid namespace is spared by the kernel what would end it by
// default, so there the default is put back. Anywhere else, and for what the
// runtime itself raises, a signal is handled, which costs two switches of threads
// each: for all of them a third of a box's start.
func holdSignals() {
	first := os.Getpid() == 1
	var held []os.Signal
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, // cannot be held
			unix.SIGURG, unix.SIGCHLD, unix.SIGPROF, unix.SIGCONT, // harmless, and used by the runtime
			32, 33, 34: // left to C libraries by the runtime; PID 1 never gets them from inside
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

// byDefault puts a signal's default back.
func byDefault(n syscall.Signal) bool {
	var action [4]uint64 // the kernel's sigaction: handler SIG_DFL, no flags, no mask
	_, _, errno := unix.Syscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	return errno == 0
}

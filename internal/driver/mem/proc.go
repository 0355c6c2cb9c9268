package mem

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// machine imitates the operating system of one box: a table of processes that are goroutines, and
// a root directory. It implements boxd.Hands.
type machine struct {
	// ctx is the parent of the contexts of all processes.
	ctx  context.Context
	root string
	ice  ice

	mu      sync.Mutex
	procs   map[int]*proc
	lastPID int
	off     bool
	gated   bool
	ooms    int64
	running sync.WaitGroup
}

func newMachine(ctx context.Context, root string) *machine {
	return &machine{ctx: ctx, root: root, procs: map[int]*proc{}, lastPID: 1}
}

// proc is an imitated process: a goroutine that looks at its context wherever it may wait.
type proc struct {
	m         *machine
	pid, ppid int
	group     int
	mark      uint64
	files     [3]*os.File
	// ctx ends when a signal ends the process.
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	status boxd.ExitStatus

	// Guarded by machine.mu.
	name    string
	signal  int
	ignored map[int]bool
}

// PID returns the process id, which is unique in its box.
func (p *proc) PID() int { return p.pid }

// Wait blocks until the process has ended.
func (p *proc) Wait() boxd.ExitStatus {
	<-p.ended
	return p.status
}

// Start starts one of the imitated programs.
func (m *machine) Start(spec boxd.StartSpec) (boxd.Process, error) {
	const op = "mem.start"
	if len(spec.Layers) > 0 {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "the mem driver cannot enforce path rules of a single agent").
			WithHint("run the agent without its own allowedReadPaths and allowedWritePaths, or with --driver local")
	}
	if info, err := os.Stat(m.real(spec.Dir)); err != nil || !info.IsDir() {
		return nil, holdfast.Errorf(holdfast.KindNotFound, op, "the working directory %s does not exist or is not a directory", holdfast.Quote(spec.Dir))
	}
	if !m.known(spec.Path) {
		return nil, holdfast.Errorf(holdfast.KindNotFound, op, "the mem driver does not imitate the program %s", holdfast.Quote(spec.Path)).
			WithHint("use the shell and the few small programs that it imitates, or --driver local")
	}
	files, err := dupAll([3]*os.File{spec.Stdin, spec.Stdout, spec.Stderr})
	if err != nil {
		return nil, err
	}
	argv := append([]string{spec.Path}, spec.Argv[min(1, len(spec.Argv)):]...)
	p, err := m.run(nil, spec.Mark, files, filepath.Base(spec.Path), func(p *proc) int {
		on := setup{env: environment(spec.Env), dir: spec.Dir, in: p.files[0], out: p.stream(p.files[1]), err: p.stream(p.files[2])}
		s := &shell{p: p}
		return s.run(p.ctx, on, &syntax.File{Name: spec.Path, Stmts: []*syntax.Stmt{{Cmd: &syntax.CallExpr{Args: quoted(argv...)}}}}, nil, false)
	})
	if err != nil {
		// Return nil itself: a nil *proc in the interface would not equal nil.
		return nil, err
	}
	return p, nil
}

// known reports whether a command can be run: its name is that of an imitated program or builtin, or its path
// leads to an executable file.
func (m *machine) known(path string) bool {
	if base := filepath.Base(path); builtins[base] || programs(base) != nil {
		return true
	}
	info, err := os.Stat(m.real(path))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// run starts fn as a process. It takes ownership of files.
func (m *machine) run(parent *proc, mark uint64, files [3]*os.File, name string, fn func(*proc) int) (*proc, error) {
	m.mu.Lock()
	if m.off {
		m.mu.Unlock()
		closeAll(files)
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "mem.start", "the box was stopped or killed, so no process can start in it")
	}
	m.lastPID++
	p := &proc{
		m: m, pid: m.lastPID, ppid: 1, group: m.lastPID, mark: mark, files: files, name: name,
		ended: make(chan struct{}), ignored: map[int]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(m.ctx)
	if parent != nil {
		p.ppid, p.group = parent.pid, parent.group
		for sig := range parent.ignored {
			p.ignored[sig] = true
		}
	}
	m.procs[p.pid] = p
	m.running.Add(1)
	m.mu.Unlock()

	go func() {
		defer m.running.Done()
		code := fn(p)
		m.mu.Lock()
		delete(m.procs, p.pid)
		p.status = boxd.ExitStatus{Code: code & 0xff}
		if p.signal != 0 {
			p.status = boxd.ExitStatus{Code: -1, Signal: p.signal}
		}
		m.mu.Unlock()
		p.cancel()
		closeAll(files)
		close(p.ended)
	}()
	return p, nil
}

// Signal signals the process group that p leads.
func (m *machine) Signal(bp boxd.Process, signal int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		if p.group == bp.PID() {
			m.hit(p, signal)
		}
	}
	return nil
}

// SignalAll signals every process and returns how many there were.
func (m *machine) SignalAll(signal int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		m.hit(p, signal)
	}
	return len(m.procs)
}

// hit delivers a signal to a process; mu is held.
func (m *machine) hit(p *proc, signal int) {
	switch syscall.Signal(signal) {
	case 0, syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGURG, syscall.SIGTSTP:
		return
	}
	if p.signal != 0 || p.ignored[signal] && signal != int(syscall.SIGKILL) {
		return
	}
	p.signal = signal
	p.cancel()
	// The process may be waiting for a pipe: closing its files ends that.
	closeAll(p.files)
}

// KillAll kills the processes that have the mark, and waits until they have ended.
func (m *machine) KillAll(mark uint64) {
	for {
		var wait []*proc
		m.mu.Lock()
		for _, p := range m.procs {
			if p.mark == mark {
				m.hit(p, int(syscall.SIGKILL))
				wait = append(wait, p)
			}
		}
		m.mu.Unlock()
		if len(wait) == 0 {
			return
		}
		for _, p := range wait {
			<-p.ended
		}
	}
}

// Left lists the processes that have the mark.
func (m *machine) Left(mark uint64) []wire.Process {
	return m.list(func(p *proc) bool { return p.mark == mark })
}

// Alive counts all processes.
func (m *machine) Alive() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.procs)
}

// MarkOf returns the mark of a process, or 0 if the process does not exist.
func (m *machine) MarkOf(pid int) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.procs[pid]; p != nil {
		return p.mark
	}
	return 0
}

// Processes lists all processes.
func (m *machine) Processes() ([]wire.Process, error) {
	return m.list(func(*proc) bool { return true }), nil
}

func (m *machine) list(want func(*proc) bool) []wire.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []wire.Process{}
	for _, p := range m.procs {
		if want(p) {
			out = append(out, wire.Process{PID: p.pid, PPID: p.ppid, Name: p.name, State: "S", Leader: p.group == p.pid})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].PID < out[j].PID })
	return out
}

// Do runs fn directly: imitated tools have no other identity.
func (m *machine) Do(fn func() error) error { return fn() }

// Gate only records whether the gate is closed, for Driver.Gated: boxd itself holds back the start of processes while
// its gate is closed.
func (m *machine) Gate(closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gated = closed
}

// OpenPTY always fails: this driver does not imitate terminals.
func (m *machine) OpenPTY() (master, slave *os.File, err error) {
	return nil, nil, holdfast.Errorf(holdfast.KindUnavailable, "mem.pty", "the mem driver does not imitate terminals").
		WithHint("use --driver local or host")
}

// Stats counts processes and out-of-memory kills; the other values are -1, unknown.
func (m *machine) Stats() wire.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return wire.Stats{
		MemoryBytes: -1, MemoryLimit: -1, Pids: int64(len(m.procs)), PidsLimit: -1,
		CPUMicros: -1, OOMKills: m.ooms, PidsRefused: -1,
	}
}

// powerOff kills all processes and refuses new ones.
func (m *machine) powerOff() {
	m.mu.Lock()
	m.off = true
	for _, p := range m.procs {
		m.hit(p, int(syscall.SIGKILL))
	}
	m.mu.Unlock()
	m.ice.thaw()
	m.running.Wait()
}

// oom kills the newest process as the kernel does when memory runs out.
func (m *machine) oom() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := 0
	for pid := range m.procs {
		newest = max(newest, pid)
	}
	if newest == 0 {
		return false
	}
	m.ooms++
	m.hit(m.procs[newest], int(syscall.SIGKILL))
	return true
}

// real returns the host's path for a path of the box.
func (m *machine) real(p string) string {
	p = filepath.Clean("/" + p)
	if p == m.root || len(p) > len(m.root) && p[:len(m.root)+1] == m.root+"/" {
		return p
	}
	return filepath.Join(m.root, p)
}

// step runs fn as one step, and waits first while the box is frozen. It returns false if the
// process was killed.
func (p *proc) step(fn func()) bool {
	if !p.m.ice.enter(p.ctx.Done()) {
		return false
	}
	defer p.m.ice.leave()
	fn()
	return true
}

// pause waits for d, or until the process is killed.
func (p *proc) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
	}
}

// open opens a file of the box. An error names the path in the box.
func (p *proc) open(dir, path string, flag int, perm os.FileMode) (f *os.File, err error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	real := p.m.real(path)
	if filepath.Clean(path) == os.DevNull {
		real = os.DevNull
	}
	if !p.step(func() { f, err = os.OpenFile(real, flag, perm) }) {
		return nil, errDead
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: cause(err)}
	}
	return f, nil
}

// cause returns the cause of an error without the host's path.
func cause(err error) error {
	var pe *os.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		return pe.Err
	case errors.As(err, &le):
		return le.Err
	}
	return err
}

func (p *proc) rename(name string) (before string) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	before, p.name = p.name, name
	return before
}

func dupAll(in [3]*os.File) (out [3]*os.File, err error) {
	for i, f := range in {
		if out[i], err = dup(f); err != nil {
			closeAll(out)
			return out, err
		}
	}
	return out, nil
}

// dup duplicates a descriptor as non-blocking, so that closing it ends a read. For a nil file it
// opens the null device.
func dup(f *os.File) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "mem.start", "stdin, stdout or stderr of the process cannot be duplicated: %w", err)
	}
	if f == nil {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return fail(err)
		}
		return null, nil
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return fail(err)
	}
	fd, ferr := -1, error(nil)
	if err := rc.Control(func(old uintptr) {
		// Hold ForkLock: a process that is forked at this moment must not inherit the descriptor.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if fd, ferr = syscall.Dup(int(old)); ferr == nil {
			syscall.CloseOnExec(fd)
		}
	}); err != nil {
		return fail(err)
	}
	if ferr != nil {
		return fail(ferr)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return fail(err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func closeAll(files [3]*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

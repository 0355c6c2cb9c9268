package boxd

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// rlimitRTTime is RLIMIT_RTTIME, whose soft limit carries a call's mark: children inherit it,
	// and no ordinary program reads or sets it.
	rlimitRTTime = 15
	// markBase is added to each mark; no real limit of a program is as high: 2^50 µs are 35 years.
	markBase = uint64(1) << 50
	// killPatience bounds KillAll, because some processes do not end even on SIGKILL (in a frozen
	// cgroup, or waiting for a dead disk).
	killPatience = 30 * time.Second
)

// OSHands is the Hands of a real system, on top of a Forker. A program has at most one OSHands, because
// it waits for every child process of the program: nothing else may wait for one (no os/exec).
//
// It finds the processes of a call by three signs: the inherited mark, the session of the call's
// leader, and descent from either. Orphans become children of boxd, because boxd is PID 1 or a
// subreaper.
type OSHands struct {
	forker Forker
	// self and session are boxd's own process id and session id.
	self, session int
	orphans       orphanage
	// noMark is true if no marks can be used, because RLIMIT_RTTIME has a hard limit or cannot be read.
	noMark bool

	// forkMu serialises forks: the mark is set on boxd itself for the time of each fork.
	forkMu sync.Mutex

	mu       sync.Mutex
	leaders  map[int]*leader
	sessions map[uint64]int
	forking  bool
	// early holds the exit status of children that ended before Start had registered them.
	early map[int]ExitStatus
	// child receives SIGCHLD: a child may have ended.
	child chan os.Signal
}

// leader is a process that was started and has not been reaped yet.
type leader struct {
	pid  int
	mark uint64
	done chan ExitStatus
}

// NewOSHands makes the Hands of this process and starts its reaper, which runs as long as the
// process. If the process is not PID 1, it becomes a subreaper.
func NewOSHands(forker Forker) (*OSHands, error) {
	h := &OSHands{
		forker: forker, self: os.Getpid(), leaders: map[int]*leader{}, sessions: map[uint64]int{},
		early: map[int]ExitStatus{}, child: make(chan os.Signal, 1),
	}
	h.session, _ = unix.Getsid(0)
	h.orphans = openOrphanage(h.self)
	if h.self != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "boxd cannot become a child subreaper: %w", err)
		}
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(rlimitRTTime, &lim); err != nil || lim.Max != unix.RLIM_INFINITY {
		h.noMark = true
	}
	signal.Notify(h.child, unix.SIGCHLD)
	go h.reap()
	return h, nil
}

// PID returns the leader's process id.
func (l *leader) PID() int { return l.pid }

// Wait blocks until the leader has ended.
func (l *leader) Wait() ExitStatus { return <-l.done }

// Start starts a process; see Hands.
func (h *OSHands) Start(spec StartSpec) (Process, error) {
	h.forkMu.Lock()
	defer h.forkMu.Unlock()
	h.mu.Lock()
	h.forking = true
	h.mu.Unlock()
	if !h.noMark {
		_ = unix.Setrlimit(rlimitRTTime, &unix.Rlimit{Cur: markBase + spec.Mark, Max: unix.RLIM_INFINITY})
	}
	pid, err := h.forker.Fork(spec)
	if !h.noMark {
		_ = unix.Setrlimit(rlimitRTTime, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forking = false
	early := h.early
	if len(early) > 0 {
		h.early = map[int]ExitStatus{}
	}
	if err != nil {
		return nil, h.startError(spec, err)
	}
	l := &leader{pid: pid, mark: spec.Mark, done: make(chan ExitStatus, 1)}
	if st, ok := early[pid]; ok {
		l.done <- st
	} else {
		h.leaders[pid] = l
	}
	h.sessions[spec.Mark] = pid
	return l, nil
}

func (h *OSHands) startError(spec StartSpec, err error) error {
	if holdfast.KindOf(err) != holdfast.KindInternal {
		return err
	}
	kind, what := holdfast.KindUnavailable, "cannot execute"
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		kind, what = holdfast.KindNotFound, "no program"
		do := h.forker.Do
		if spec.Place != nil {
			do = spec.Place.Do
		}
		if derr := do(func() error { return paths.IsDir(spec.Dir) }); derr != nil {
			return holdfast.Errorf(kind, "boxd exec", "no working directory %s for the command: %w", holdfast.Quote(spec.Dir), derr)
		}
	case errors.Is(err, fs.ErrPermission):
		kind, what = holdfast.KindDenied, "may not run"
	case errors.Is(err, unix.EAGAIN):
		kind, what = holdfast.KindBusy, "no room for another process to run"
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.E2BIG), errors.Is(err, unix.EINVAL):
		kind = holdfast.KindInvalid
	}
	return holdfast.Errorf(kind, "boxd exec", "command not started: %s %s: %w", what, holdfast.Quote(spec.Path), err)
}

// Signal signals the process group that p leads. It does nothing when p has ended.
func (h *OSHands) Signal(p Process, signal int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaders[p.PID()] != p {
		return nil
	}
	return unix.Kill(-p.PID(), syscall.Signal(signal))
}

// reap waits for every child. It reaps only under the lock, so that a pid that Signal finds there
// cannot belong to another process yet. It is driven by SIGCHLD: a thread that blocks in waitid
// would cost more, because the Go runtime has to notice that it blocks.
func (h *OSHands) reap() {
	for {
		for pid := endedChild(); pid > 0; pid = endedChild() {
			h.mu.Lock()
			h.collect(pid)
			h.mu.Unlock()
		}
		<-h.child
	}
}

func (h *OSHands) collect(pid int) {
	var ws unix.WaitStatus
	got, err := unix.Wait4(pid, &ws, unix.WNOHANG|unix.WALL, nil)
	if err != nil || got != pid {
		return
	}
	st := ExitStatus{Code: -1}
	if ws.Signaled() {
		st.Signal = int(ws.Signal())
	} else {
		st.Code = ws.ExitStatus()
	}
	if l := h.leaders[pid]; l != nil {
		delete(h.leaders, pid)
		l.done <- st
	} else if h.forking {
		h.early[pid] = st
	}
}

// Do runs fn with the identity of tools.
func (h *OSHands) Do(fn func() error) error { return h.forker.Do(fn) }

// Gate blocks Start (true) or allows it again (false).
func (h *OSHands) Gate(closed bool) { h.forker.Gate(closed) }

// KillAll kills every process that has the mark and returns when none is left. Whole process
// groups are killed first, because the kernel lets no member of a group fork past a signal to the
// group. Processes that escape by starting a session for each fork are chased without a pause; if
// they multiply faster than that, they are stopped (SIGSTOP) first.
func (h *OSHands) KillAll(mark uint64) {
	until := time.Now().Add(killPatience)
	for round := 0; ; round++ {
		alive, running := 0, false
		own := h.marked(mark)
		for _, p := range own {
			if !p.ended() {
				alive++
				running = running || p.state != 'T' && p.state != 't'
			}
		}
		if alive == 0 || time.Now().After(until) {
			return
		}
		sig := unix.SIGKILL
		if round >= 8 && alive > 8 && running && round%8 != 0 {
			sig = unix.SIGSTOP
		}
		for _, p := range own {
			if sig == unix.SIGKILL {
				h.signalGroup(p, sig)
			}
			h.signal(p, sig)
		}
		h.chase(mark)
	}
}

// EndWhere ends every process whose mark satisfies belongs: it sends SIGTERM, and after grace SIGKILL.
func (h *OSHands) EndWhere(belongs func(mark uint64) bool, grace time.Duration) {
	own := h.where(belongs)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGCONT} {
		if grace > 0 {
			for _, p := range own {
				h.signal(p, sig)
			}
		}
	}
	poll(time.Now().Add(grace), 5*time.Millisecond, func() bool { return !alive(h.where(belongs)) })
	for until := time.Now().Add(killPatience); time.Now().Before(until); {
		own := h.where(belongs)
		if !alive(own) {
			break
		}
		for _, p := range own {
			h.signalGroup(p, unix.SIGKILL)
			h.signal(p, unix.SIGKILL)
		}
	}
}

func alive(procs []proc) bool {
	return slices.ContainsFunc(procs, func(p proc) bool { return !p.ended() })
}

// Join implements Sharer, if the Forker does.
func (h *OSHands) Join(mounts []*os.File) (Place, error) {
	sharer, ok := h.forker.(Sharer)
	if !ok {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd join", "this box cannot be shared by several sessions")
	}
	return sharer.Join(mounts)
}

// chase kills, for a moment, the orphans of a call at once when they become boxd's children:
// between two scans of all processes a runaway process can fork and exit unseen.
func (h *OSHands) chase(mark uint64) {
	for range 20 {
		pids, ok := h.orphans.list()
		if !ok {
			return
		}
		found := false
		for _, pid := range pids {
			h.mu.Lock()
			l := h.leaders[pid]
			h.mu.Unlock()
			if l != nil && l.mark != mark || readMark(pid) != mark {
				continue
			}
			if p, ok := readProc(pid); ok && p.ppid == h.self && !p.ended() {
				h.signalGroup(p, unix.SIGKILL)
				h.signal(p, unix.SIGKILL)
				found = true
			}
		}
		if !found {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// signalGroup signals the process group of p, a process of a call. A group never spans two
// sessions, and each call has sessions of its own.
func (h *OSHands) signalGroup(p proc, sig syscall.Signal) {
	if p.group > 1 && p.session != h.session && p.group != h.self {
		_ = unix.Kill(-p.group, sig)
	}
}

// Left lists the running processes that have the mark.
func (h *OSHands) Left(mark uint64) []wire.Process {
	if n, _ := h.left(); n == 0 {
		h.forget(mark)
		return nil
	}
	var out []wire.Process
	for _, p := range h.marked(mark) {
		if !p.ended() {
			out = append(out, p.wire())
		}
	}
	if out == nil {
		h.forget(mark)
	}
	return out
}

func (h *OSHands) forget(mark uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.leaders[h.sessions[mark]]; l == nil || l.mark != mark {
		delete(h.sessions, mark)
	}
}

// left counts the children of boxd: leaders are those that lead a running call, n the others. n is -1
// if the kernel cannot list the children. If n is 0, no call that has ended left a process behind.
func (h *OSHands) left() (n, leaders int) {
	pids, ok := h.orphans.list()
	if !ok {
		return -1, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pid := range pids {
		if h.leaders[pid] != nil {
			continue
		}
		if p, ok := readProc(pid); ok && !p.ended() {
			n++
		}
	}
	return n, len(h.leaders)
}

// Alive returns the sum of the two numbers of left, or -1 if the kernel cannot list the processes.
func (h *OSHands) Alive() int {
	n, leaders := h.left()
	return n + leaders
}

// Processes lists every process of the box except boxd.
func (h *OSHands) Processes() ([]wire.Process, error) {
	procs, err := descendants(h.self)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Process, 0, len(procs))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range procs {
		if !p.ended() {
			w := p.wire()
			w.Leader = h.leaders[p.pid] != nil
			out = append(out, w)
		}
	}
	return out, nil
}

// SignalAll signals every process of the box and returns how many there were.
func (h *OSHands) SignalAll(signal int) int {
	procs, err := descendants(h.self)
	if err != nil {
		return 0
	}
	if h.self == 1 {
		// boxd is PID 1, so the namespace is the box: one call reaches all processes without a race.
		_ = unix.Kill(-1, syscall.Signal(signal))
		return len(procs)
	}
	for _, p := range procs {
		if signal == int(unix.SIGKILL) {
			h.signalGroup(p, unix.SIGKILL)
		}
		h.signal(p, syscall.Signal(signal))
	}
	return len(procs)
}

// MarkOf returns the mark of a process, or 0 if it has none.
func (h *OSHands) MarkOf(pid int) uint64 { return readMark(pid) }

// signal signals the process that was read from /proc as p, never another that got its pid since.
func (h *OSHands) signal(p proc, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readProc(p.pid); !ok || now.start != p.start {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0)
}

// marked lists the processes that belong to the call with that mark.
func (h *OSHands) marked(mark uint64) []proc {
	return h.where(func(m uint64) bool { return m == mark })
}

// where lists the processes of the calls whose marks satisfy belongs.
func (h *OSHands) where(belongs func(mark uint64) bool) []proc {
	procs, err := descendants(h.self)
	if err != nil {
		return nil
	}
	h.mu.Lock()
	sids, others := map[int]bool{}, map[int]bool{}
	for mark, sid := range h.sessions {
		if sid != 0 && belongs(mark) {
			sids[sid] = true
		}
	}
	for pid, l := range h.leaders {
		if !belongs(l.mark) {
			others[pid] = true
		}
	}
	h.mu.Unlock()
	mine := map[int]bool{}
	var out []proc
	// descendants lists parents before their children.
	for _, p := range procs {
		if others[p.pid] {
			continue
		}
		m := readMark(p.pid)
		if m != 0 && belongs(m) || mine[p.ppid] || m == 0 && sids[p.session] {
			mine[p.pid] = true
			out = append(out, p)
		}
	}
	return out
}

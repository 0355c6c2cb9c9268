package boxd

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// rlimitRTTime is the inherited marker: the soft limit on the time that a
	// realtime task may run, which no ordinary program reads or sets.
	rlimitRTTime = 15
	// markBase lifts marks far over any real limit: 2^50 µs are 35 years.
	markBase = uint64(1) << 50
	// killPatience bounds KillAll for processes that even SIGKILL does not end
	// (a frozen leaf, a dead disk).
	killPatience = 30 * time.Second
)

// OSHands are the real Hands, over a Forker. There is one per process: it waits
// for every child of the process, so nothing else may (no os/exec).
//
// What belongs to a call is found by three signs: the inherited marker, the
// session of the call's leader, and descent from either. Orphans come to boxd,
// because it is PID 1 or a subreaper.
type OSHands struct {
	forker Forker
	// self and session are boxd's own.
	self, session int
	orphans       orphanage
	// noMark is set where the hard limit leaves no room for markers.
	noMark bool

	// forkMu serialises forks: the marker is set on boxd itself around each.
	forkMu sync.Mutex

	mu       sync.Mutex
	leaders  map[int]*leader
	sessions map[uint64]int
	forking  bool
	// early are children that ended before their fork was registered.
	early map[int]ExitStatus
	// child is signalled when a child may have ended.
	child chan os.Signal
}

// leader is a started process until it was reaped.
type leader struct {
	hands *OSHands
	pid   int
	mark  uint64
	done  chan ExitStatus
}

// NewOSHands makes the Hands of this process and starts its reaper, which runs
// as long as the process. Without PID 1 it makes the process a subreaper.
func NewOSHands(forker Forker) (*OSHands, error) {
	h := &OSHands{
		forker: forker, self: os.Getpid(), leaders: map[int]*leader{}, sessions: map[uint64]int{},
		early: map[int]ExitStatus{}, child: make(chan os.Signal, 1),
	}
	h.session, _ = unix.Getsid(0)
	h.orphans = openOrphanage(h.self)
	if h.self != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "cannot become a subreaper: %w", err)
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

// PID is the leader's process id.
func (l *leader) PID() int { return l.pid }

// Wait blocks until the leader ended.
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
	l := &leader{hands: h, pid: pid, mark: spec.Mark, done: make(chan ExitStatus, 1)}
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
	kind, what := holdfast.KindUnavailable, "cannot start"
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		kind, what = holdfast.KindNotFound, "no program"
		if derr := h.forker.Do(func() error { return paths.IsDir(spec.Dir) }); derr != nil {
			return holdfast.Errorf(kind, "boxd exec", "no working directory %s: %w", holdfast.Quote(spec.Dir), derr)
		}
	case errors.Is(err, fs.ErrPermission):
		kind, what = holdfast.KindDenied, "may not run"
	case errors.Is(err, unix.EAGAIN):
		kind, what = holdfast.KindBusy, "no room for another process: cannot start"
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.E2BIG), errors.Is(err, unix.EINVAL):
		kind = holdfast.KindInvalid
	}
	return holdfast.Errorf(kind, "boxd exec", "%s %s: %w", what, holdfast.Quote(spec.Path), err)
}

// Signal signals the process group that p leads; nothing when it ended.
func (h *OSHands) Signal(p Process, signal int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaders[p.PID()] != p {
		return nil
	}
	return unix.Kill(-p.PID(), syscall.Signal(signal))
}

// reap waits for every child. It only looks before it takes the lock, so that a
// pid that Signal sees cannot be another process yet. A thread that blocks in
// waitid would do as well, and cost more: the runtime has to notice that it blocks.
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

// Gate holds back or admits Start.
func (h *OSHands) Gate(closed bool) { h.forker.Gate(closed) }

// KillAll kills everything that bears the mark and returns when nothing is left.
// Whole groups are killed first, because the kernel lets no member of a group
// fork past a signal to it. What runs away by a new session for each fork is
// chased without a pause; a crowd that grows faster is stopped first.
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

// chase kills orphans of the call as they come to boxd, for a moment: between
// two looks at all processes, a process can have become another one.
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

// signalGroup signals the process group of a process of a call. Groups do not
// cross sessions, and each call has sessions of its own.
func (h *OSHands) signalGroup(p proc, sig syscall.Signal) {
	if p.group > 1 && p.session != h.session && p.group != h.self {
		_ = unix.Kill(-p.group, sig)
	}
}

// Left lists what bears the mark and still runs.
func (h *OSHands) Left(mark uint64) []wire.Process {
	if h.nothingLeft() {
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

// nothingLeft is the quick answer for the usual case: boxd has no orphan but
// leaders of calls that still run, so no call that ended has left anything.
func (h *OSHands) nothingLeft() bool {
	pids, ok := h.orphans.list()
	if !ok {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pid := range pids {
		if h.leaders[pid] == nil {
			return false
		}
	}
	return true
}

// Processes lists every process of the box but boxd.
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

// SignalAll signals every process of the box.
func (h *OSHands) SignalAll(signal int) int {
	procs, err := descendants(h.self)
	if err != nil {
		return 0
	}
	if h.self == 1 {
		// The namespace is the box: one call reaches all, with no race.
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

// MarkOf is the mark of a process; 0 when it bears none.
func (h *OSHands) MarkOf(pid int) uint64 { return readMark(pid) }

// signal signals a process that was seen in /proc, never one that took its pid.
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

// marked lists the processes that belong to a call.
func (h *OSHands) marked(mark uint64) []proc {
	procs, err := descendants(h.self)
	if err != nil {
		return nil
	}
	h.mu.Lock()
	sid := h.sessions[mark]
	others := map[int]bool{}
	for pid, l := range h.leaders {
		if l.mark != mark {
			others[pid] = true
		}
	}
	h.mu.Unlock()
	mine := map[int]bool{}
	var out []proc
	// Parents come before their children.
	for _, p := range procs {
		if others[p.pid] {
			continue
		}
		m := readMark(p.pid)
		if m == mark || mine[p.ppid] || m == 0 && sid != 0 && p.session == sid {
			mine[p.pid] = true
			out = append(out, p)
		}
	}
	return out
}

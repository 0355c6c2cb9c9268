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
	// rlimitRTTime is the number of RLIMIT_RTTIME. boxd sets the soft limit of a process to the mark of
	// its call: children inherit the limit, and ordinary programs neither read nor set it.
	rlimitRTTime = 15
	// markBase is added to each mark to get the limit. No program sets such a high limit: 2^50 µs are 35 years.
	markBase = uint64(1) << 50
	// killPatience is how long KillAll and EndWhere try to kill processes. Some do not end on SIGKILL:
	// those in a frozen cgroup, or those that wait for a broken disk.
	killPatience = 30 * time.Second
)

// OSHands is the Hands of a Linux system; a Forker does the part from fork to exec. A program may have only one
// OSHands, and must not use os/exec, because OSHands waits for all child processes of the program.
//
// A process belongs to a call if it has the call's mark, or if it has no mark and is in the Unix session of the call's
// leader, or if its parent belongs to the call. Orphans become children of boxd, because boxd is PID 1 or a subreaper.
type OSHands struct {
	forker Forker
	// self and session are boxd's own process id and session id.
	self, session int
	orphans       orphanage
	// noMark is true if marks cannot be used, because RLIMIT_RTTIME has a hard limit or cannot be read.
	noMark bool

	// forkMu is held during each fork, because boxd has the mark of the call as its own limit meanwhile.
	forkMu sync.Mutex

	mu       sync.Mutex
	leaders  map[int]*leader
	sessions map[uint64]int
	forking  bool
	// early maps the pids of children that ended during a fork to their exit statuses. Start looks there for its child.
	early map[int]ExitStatus
	// child receives the signal SIGCHLD, which means that a child may have ended.
	child chan os.Signal
}

// leader is a Process: the first process of a call.
type leader struct {
	pid  int
	mark uint64
	done chan ExitStatus
}

// NewOSHands makes the OSHands of this process. It starts a goroutine that waits for child processes and
// never ends. If the process is not PID 1, it becomes a subreaper.
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

// Wait waits until the leader has ended, and returns how it ended.
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

// Signal sends a signal to the process group that p leads. It does nothing if p has ended.
func (h *OSHands) Signal(p Process, signal int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaders[p.PID()] != p {
		return nil
	}
	return unix.Kill(-p.PID(), syscall.Signal(signal))
}

// reap waits for the end of all children. It collects the status of a child only while it holds h.mu, so
// that a pid in h.leaders cannot belong to a new process when Signal uses it. It waits for SIGCHLD and
// not in waitid, because a thread that blocks in waitid costs the Go runtime more.
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

// Gate makes calls of Start wait (true) or lets them go on (false); see Hands.
func (h *OSHands) Gate(closed bool) { h.forker.Gate(closed) }

// KillAll kills all processes of the call with the mark, and returns when none is left, or after
// killPatience. It signals whole process groups, because no member of a group can escape such a signal
// by a fork. Processes can escape if they make a new session for each fork: KillAll looks for new
// processes again and again. If more than eight are left after eight rounds and one of them still runs,
// most rounds stop them (SIGSTOP) instead of killing them, so that they fork no more.
func (h *OSHands) KillAll(mark uint64) {
	until := time.Now().Add(killPatience)
	for round := 0; ; round++ {
		alive, running := 0, false
		own, err := h.marked(mark)
		for _, p := range own {
			if !p.ended() {
				alive++
				running = running || p.state != 'T' && p.state != 't'
			}
		}
		if err == nil && alive == 0 || time.Now().After(until) {
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

// EndWhere ends the processes of all calls whose marks satisfy belongs: it sends SIGTERM, and SIGKILL after
// grace. If grace is 0, it sends only SIGKILL. It returns when none is left, or after killPatience.
func (h *OSHands) EndWhere(belongs func(mark uint64) bool, grace time.Duration) {
	own, _ := h.where(belongs)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGCONT} {
		if grace > 0 {
			for _, p := range own {
				h.signal(p, sig)
			}
		}
	}
	poll(time.Now().Add(grace), 5*time.Millisecond, func() bool {
		own, err := h.where(belongs)
		return err == nil && !alive(own)
	})
	for until := time.Now().Add(killPatience); time.Now().Before(until); {
		own, err := h.where(belongs)
		if err == nil && !alive(own) {
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

// Join implements Sharer with the Join of the Forker. It returns invalid if the Forker has none.
func (h *OSHands) Join(mounts []*os.File) (Place, error) {
	sharer, ok := h.forker.(Sharer)
	if !ok {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd join", "this box cannot be shared by several sessions")
	}
	return sharer.Join(mounts)
}

// chase looks at the children of boxd several times within a few milliseconds, and kills those that belong
// to the call with the mark. A process that forks and exits between two scans of all processes would
// escape KillAll; but its child becomes a child of boxd.
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
			if p, ok, _ := readProc(pid); ok && p.ppid == h.self && !p.ended() {
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

// signalGroup signals the process group of p, a process of a call, unless p is in boxd's session. So the signal reaches
// only processes of this call: all processes of a group are in one session, and no two calls have a session in common.
func (h *OSHands) signalGroup(p proc, sig syscall.Signal) {
	if p.group > 1 && p.session != h.session && p.group != h.self {
		_ = unix.Kill(-p.group, sig)
	}
}

// Left lists the living processes of the call with the mark; see Hands.
func (h *OSHands) Left(mark uint64) []wire.Process {
	if n, _ := h.left(); n == 0 {
		h.forget(mark)
		return nil
	}
	var out []wire.Process
	procs, err := h.marked(mark)
	if err != nil {
		return []wire.Process{{Name: "an unknown number of processes: " + err.Error()}}
	}
	for _, p := range procs {
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

// left counts the living children of boxd: leaders is the number of those that are the first process of a running call,
// n that of the others. n is -1 if the children cannot be listed. If n is 0, no process of an ended call is left.
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
		p, ok, err := readProc(pid)
		if err != nil {
			return -1, 0
		}
		if ok && !p.ended() {
			n++
		}
	}
	return n, len(h.leaders)
}

// Alive returns the number of living children of boxd, or -1 if they cannot be listed.
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

// SignalAll signals all processes of the box except boxd. It returns how many it found; 0 if it cannot list them.
func (h *OSHands) SignalAll(signal int) int {
	procs, _ := descendants(h.self)
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

// signal signals the process p, which was read from /proc. If another process has got its pid since, signal does nothing.
func (h *OSHands) signal(p proc, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok, _ := readProc(p.pid); !ok || now.start != p.start {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0)
}

// marked lists the processes of the call with the mark.
func (h *OSHands) marked(mark uint64) ([]proc, error) {
	return h.where(func(m uint64) bool { return m == mark })
}

// where lists the processes of the calls whose marks satisfy belongs.
func (h *OSHands) where(belongs func(mark uint64) bool) ([]proc, error) {
	procs, err := descendants(h.self)
	if err != nil {
		time.Sleep(5 * time.Millisecond) // pause here, because callers may call where again at once
		return nil, err
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
	return out, nil
}

package jail

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const op = "jail"

// Enter closes the box that cfg.Jail describes around the calling process, which
// must be the first of its namespaces, and confines the threads that Begin made. It
// must be called once, before anything is forked or listened to. inForce and missing
// say what protects the box, cfg.Jail's own lists included; each missing one is
// "name: reason". An error is of kind unavailable, or invalid for a config that
// makes no sense; the process is then half jailed and must exit.
func Enter(cfg *wire.Config, t *Threads) (forker boxd.Forker, inForce, missing []string, err error) {
	e, err := enter(cfg, t)
	if err != nil {
		return nil, nil, nil, err
	}
	return e.forker, e.inForce, e.missing, nil
}

// entry is one Enter under way.
type entry struct {
	cfg              *wire.Config
	jail             *wire.Jail
	inForce, missing []string

	oom    int
	root   *root
	forker *forker
	walls  *walls // nil without path rules
}

func (e *entry) force(name string) { e.inForce = append(e.inForce, name) }
func (e *entry) lack(name, reason string) {
	e.missing = append(e.missing, name+": "+reason)
}

func unavailable(what string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "%s: %w", what, err)
}

// steps runs named steps until one fails.
func steps(list []step) error {
	for _, s := range list {
		if err := s.do(); err != nil {
			if holdfast.KindOf(err) != holdfast.KindInternal {
				return err
			}
			return unavailable(s.what, err)
		}
	}
	return nil
}

type step struct {
	what string
	do   func() error
}

// enter does it.
func enter(cfg *wire.Config, t *Threads) (*entry, error) {
	switch {
	case cfg.Jail == nil:
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the config describes no jail")
	case cfg.Jail.ToolUID <= 0:
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "tools may not run as uid %d", cfg.Jail.ToolUID)
	}
	e := &entry{cfg: cfg, jail: cfg.Jail, inForce: cfg.Jail.InForce, missing: cfg.Jail.Missing}
	if err := e.check(); err != nil {
		return nil, err
	}
	// Before anything else: what was inherited must not reach a child (HZ-9).
	if err := unix.CloseRange(3, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, unavailable("close_range", err)
	}
	// Opened before this process turns undumpable: afterwards the file belongs to
	// a user that an ordinary user's box does not even map.
	e.oom = openOOM()
	e.root = &root{jail: e.jail}
	e.forker = newForker(e.jail, e.oom, t)
	lo := make(chan error, 1)
	var rules *rulesets
	err := steps([]step{
		{"PR_SET_DUMPABLE", undumpable},
		// While this thread mounts; the confined threads are at theirs.
		{"beside", func() error { go func() { lo <- loopback() }(); return nil }},
		{"detached directories", e.detach},
		{"mounts", e.root.build},
		{"loopback", func() error { return <-lo }},
		{"path rules", e.buildWalls},
		// The forking thread has to have rooted its cgroup namespace before the move.
		{"seccomp", t.wait},
		{"spare threads", e.forker.spares},
		{"move to the leaf", e.moveSelf},
		{"ambient capabilities", e.dropAmbient},
		{"groups", e.dropGroups},
		{"root", e.root.enter},
		{"read-only root", e.root.seal},
		{"hostname", func() error { return unix.Sethostname([]byte(e.jail.Hostname)) }},
		{"limits", e.rlimits},
		{"namespace limits", e.noNestedNamespaces},
		{"capabilities of boxd", e.dropOwn},
		{"landlock", func() (err error) { rules, err = e.landlock(); return err }},
		{"confinement", func() error { return e.forker.confine(rules) }},
		{"proof of path rules", e.proveWalls},
	})
	if err != nil {
		return nil, err
	}
	rules.close()
	e.force("read-only-root")
	e.force("no-new-privs")
	e.force("no-capabilities")
	e.force("seccomp")
	if len(e.jail.WorkTasks) > 0 || e.jail.WorkCgroup > 0 {
		e.force("cgroup-leaves")
	} else {
		e.lack("cgroup-leaves", "no cgroup was given: boxd and tools share one")
	}
	if e.oom < 0 {
		e.lack("oom-score", "/proc/self/oom_score_adj cannot be written")
	}
	return e, nil
}

func undumpable() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// dropGroups leaves boxd with no group of the server. An ordinary user's namespace
// may not call setgroups; its groups stay, and reach only what is mounted.
func (e *entry) dropGroups() error {
	if e.jail.SameUID {
		return nil
	}
	if groups, err := unix.Getgroups(); err == nil && len(groups) == 0 {
		return nil
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return errno
	}
	return undumpable()
}

// check refuses a config that would confine less than it says.
func (e *entry) check() error {
	j := e.jail
	switch {
	case os.Getpid() != 1:
		return holdfast.Errorf(holdfast.KindInvalid, op, "pid %d is not the first of a pid namespace", os.Getpid())
	case len(j.WorkTasks) != len(j.BoxdTasks):
		return holdfast.Errorf(holdfast.KindInvalid, op, "%d cgroup files of the work leaf and %d of boxd's: there must be as many", len(j.WorkTasks), len(j.BoxdTasks))
	case !seccompKnown():
		return holdfast.Errorf(holdfast.KindUnavailable, op, "no seccomp program for this architecture")
	}
	return nil
}

// loopback brings lo up: the proxy listeners of the box live there.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
}

func (e *entry) rlimits() error {
	if e.jail.NofileSoft > 0 {
		// Through package syscall, so that ForkExec does not put the limits back
		// that the Go runtime found at start.
		var now syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
			return err
		}
		lim := syscall.Rlimit{Cur: e.jail.NofileSoft, Max: max(e.jail.NofileHard, e.jail.NofileSoft)}
		if lim.Max > now.Max {
			e.lack("nofile-limit", fmt.Sprintf("the server's own hard limit is %d", now.Max))
			lim.Max = now.Max
			lim.Cur = min(lim.Cur, lim.Max)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
			return err
		}
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// moveSelf moves this process into its own leaf on cgroup v2. The forker rooted
// its cgroup namespace above both leaves before (see forker.start).
func (e *entry) moveSelf() error {
	if e.jail.BoxdProcs <= 0 {
		return nil
	}
	_, err := unix.Write(e.jail.BoxdProcs, []byte("0"))
	return err
}

// noNestedNamespaces takes the right to make user namespaces from the box as a
// whole. Without one, tools cannot get a capability over any other namespace,
// whatever way around the seccomp program there may be.
func (e *entry) noNestedNamespaces() error {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		if e.jail.WorkCgroup > 0 {
			// On v2 the program must let clone3 pass, so this is what holds.
			return err
		}
		e.lack("no-nested-namespaces", err.Error())
		return nil
	}
	e.force("no-nested-namespaces")
	return nil
}

// openOOM opens this process' OOM score for writing; -1 when it cannot be.
func openOOM() int {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// readScore is the present OOM score of the process behind fd; 0 if unreadable.
func readScore(fd int) int {
	var buf [16]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil || n <= 0 {
		return 0
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return v
}

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

// Enter confines the calling process to the box that cfg.Jail describes, and completes the confinement of the threads
// of Begin. The process must be the first one of its pid namespace. Enter must be called once, before the process
// forks or listens. inForce and missing list the protections that the box has and lacks, those in cfg.Jail included;
// an entry of missing is "name: reason". The Kind of an error is invalid for a bad configuration, usually unavailable
// otherwise. After an error the process may be partly confined and must exit.
func Enter(cfg *wire.Config, t *Threads) (forker boxd.Forker, inForce, missing []string, err error) {
	e, err := enter(cfg, t)
	if err != nil {
		return nil, nil, nil, err
	}
	return e.forker, e.inForce, e.missing, nil
}

// entry is the state of one call of Enter.
type entry struct {
	cfg              *wire.Config
	jail             *wire.Jail
	inForce, missing []string

	oom    int
	root   *root
	forker *forker
	walls  *walls // nil if there are no path rules
}

func (e *entry) force(name string) { e.inForce = append(e.inForce, name) }
func (e *entry) lack(name, reason string) {
	e.missing = append(e.missing, name+": "+reason)
}

func unavailable(what string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot confine the box, the step that failed is %s: %w", what, err)
}

// steps runs steps in order until one fails. It returns the error of this step, as unavailable with
// the name of the step if the error has no Kind.
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

func enter(cfg *wire.Config, t *Threads) (*entry, error) {
	switch {
	case cfg.Jail == nil:
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the box's configuration describes no jail")
	case cfg.Jail.ToolUID <= 0:
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "tools may not run as uid %d: the configured uid must be above 0", cfg.Jail.ToolUID)
	}
	e := &entry{cfg: cfg, jail: cfg.Jail, inForce: cfg.Jail.InForce, missing: cfg.Jail.Missing}
	if err := e.check(); err != nil {
		return nil, err
	}
	// Do this first: a child must not inherit the descriptors that boxd has inherited (HZ-9).
	if err := unix.CloseRange(3, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, unavailable("close_range", err)
	}
	// Open the OOM score before the step PR_SET_DUMPABLE: after it the file belongs to root of the
	// host, whom the user namespace of an ordinary user's box does not map.
	e.oom = openOOM()
	e.root = &root{jail: e.jail}
	e.forker = newForker(e.jail, e.oom, t)
	e.forker.umask = int(e.cfg.Mask())
	e.forker.trees = trees{cfg.Workspace, cfg.Home, cfg.Tmp}
	e.forker.patterns = patternsFor(e.jail.Walls, cfg.Home)
	lo := make(chan error, 1)
	var rules *rulesets
	err := steps([]step{
		{"PR_SET_DUMPABLE", undumpable},
		// Bring the interface lo up in another goroutine while this one makes the mounts.
		{"loopback thread", func() error { go func() { lo <- loopback() }(); return nil }},
		{"detached directories", e.detach},
		{"mounts", e.root.build},
		{"loopback", func() error { return <-lo }},
		{"path rules", e.buildWalls},
		// The forking thread must make its cgroup namespace before boxd moves into its own leaf.
		{"seccomp", t.wait},
		{"spare threads", e.forker.spares},
		{"move to the leaf", e.moveSelf},
		{"ambient capabilities", e.dropAmbient},
		{"groups", e.dropGroups},
		{"root", e.root.enter},
		{"read-only root", e.root.seal},
		{"propagation", e.propagate},
		{"hostname", func() error { return unix.Sethostname([]byte(e.jail.Hostname)) }},
		{"limits", e.rlimits},
		{"namespace limits", e.noNestedNamespaces},
		{"capabilities of boxd", e.dropOwn},
		{"landlock", func() (err error) { rules, err = e.landlock(); return err }},
		{"confinement", func() error { return e.forker.confine(rules) }},
		{"proof of modes", e.proveModes},
		{"proof of path rules", e.proveWalls},
		{"places of sessions", e.tryPlace},
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

// dropGroups removes the server's supplementary groups from boxd. A box of an ordinary user keeps them, because
// setgroups is not allowed in its user namespace; there they matter only for files that are mounted into the box.
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

// check returns an error if boxd is not the first process of its pid namespace, if the configuration has
// different numbers of cgroup files for tools and for boxd, or if there are no seccomp programs for this architecture.
func (e *entry) check() error {
	j := e.jail
	switch {
	case os.Getpid() != 1:
		return holdfast.Errorf(holdfast.KindInvalid, op, "boxd has pid %d, but must be the first process of a pid namespace", os.Getpid())
	case len(j.WorkTasks) != len(j.BoxdTasks):
		return holdfast.Errorf(holdfast.KindInvalid, op, "the configuration has %d cgroup files for tools and %d for boxd: the numbers must be equal", len(j.WorkTasks), len(j.BoxdTasks))
	case !seccompKnown():
		return holdfast.Errorf(holdfast.KindUnavailable, op, "holdfast has no seccomp program for this architecture")
	}
	return nil
}

// loopback brings the interface lo up, on which the proxy listeners of the box listen.
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
		// Set the limit with package syscall: children of its ForkExec then inherit the limit.
		// Otherwise they would get the limit that the Go runtime found when boxd started.
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

// moveSelf moves this process into boxd's own leaf on cgroup v2; elsewhere it does nothing. Before
// that, the forking thread must have made its cgroup namespace (see beginFork).
func (e *entry) moveSelf() error {
	if e.jail.BoxdProcs <= 0 {
		return nil
	}
	_, err := unix.Write(e.jail.BoxdProcs, []byte("0"))
	return err
}

// noNestedNamespaces sets the limit of user namespaces that the box may make to 0. Without a user
// namespace of their own, tools cannot get a capability, even if they get around the seccomp filter.
func (e *entry) noNestedNamespaces() error {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		if e.jail.WorkCgroup > 0 {
			// On cgroup v2 the seccomp filter must allow clone3, so only this limit prevents new namespaces.
			return err
		}
		e.lack("no-nested-namespaces", err.Error())
		return nil
	}
	e.force("no-nested-namespaces")
	return nil
}

// openOOM opens the file of this process's OOM score adjustment for reading and writing; -1 if that fails.
func openOOM() int {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// readScore reads the OOM score adjustment from the open file fd; 0 if it cannot be read.
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

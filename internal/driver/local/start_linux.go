package local

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// namespaces are the new namespaces of every box. On cgroup v2, boxd makes the cgroup namespace itself.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

var namespaceNames = []string{
	"user-namespace", "mount-namespace", "pid-namespace", "network-namespace", "ipc-namespace", "uts-namespace", "cgroup-namespace",
}

// extraTree is the key, in a record, of the box's Spec.Tree.
const extraTree = "tree"

// diskChecked is in the list of missing protections of every box.
const diskChecked = "disk-limit: checked, not enforced"

// launch is one start of a box.
type launch struct {
	d      *Driver
	spec   sandbox.Spec
	limits sandbox.Limits
	cg     boxCgroup
	// leaf holds the open files by which boxd's process is started in its cgroup: the "tasks"
	// files of boxd's leaf on cgroup v1, the box's cgroup directory on v2.
	leaf []*os.File
	// last is true in the last try to start the box.
	last bool
	// hand is what boxd receives at its start, without the cgroup files.
	hand boxproc.Handover

	inForce, missing []string
}

func (l *launch) close() {
	closeAll(l.leaf)
	l.hand.Close()
}

// start starts the box. The box's lock is held, and nothing is left of an earlier run. inForce
// lists the protections and limits of the box, as measured.
func (d *Driver) start(ctx context.Context, spec sandbox.Spec, last bool) (r boxproc.Record, inForce []string, err error) {
	h := d.cg()
	l := &launch{d: d, spec: spec, limits: withDefaults(spec.Limits), cg: h.plan(spec.Box), last: last}
	if r, err = withExtra(boxproc.Record{Box: spec.Box, Spec: spec.Hash(), StartedAt: d.cfg.Now()}, extraCgroup, l.cg); err != nil {
		return r, nil, err
	}
	if spec.Shared {
		if r, err = withExtra(r, extraShared, sharedRecord{Tool: spec.ToolUID, Group: toolGID(spec), Agents: true}); err != nil {
			return r, nil, err
		}
	}
	if spec.Tree != "" {
		if r, err = withExtra(r, extraTree, spec.Tree); err != nil {
			return r, nil, err
		}
	}
	if !spec.Walls.Empty() {
		if r, err = withExtra(r, extraWalls, planWalls(spec, d.root)); err != nil {
			return r, nil, err
		}
	}
	// Write the record first: it names what a killed server would leave.
	if err := d.Dir.Write(r); err != nil {
		return r, nil, err
	}
	unlock, err := d.lockTree(ctx, r)
	if err == nil {
		r, err = l.run(ctx, h, r)
		unlock()
	}
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.StartTimeout)
		defer cancel()
		return r, nil, errors.Join(err, d.clear(clean, spec.Box), d.Dir.Delete(spec.Box))
	}
	return r, l.inForce, nil
}

// startAgain does the same as start, but tries again if a file of the host was replaced while it was mounted, or after
// an error of the kind busy. A failed try leaves nothing behind.
func (d *Driver) startAgain(ctx context.Context, spec sandbox.Spec) (r boxproc.Record, inForce []string, err error) {
	err = again(ctx, func(last bool) error {
		r, inForce, err = d.start(ctx, spec, last)
		return err
	})
	return r, inForce, err
}

func (l *launch) run(ctx context.Context, h hierarchy, r boxproc.Record) (boxproc.Record, error) {
	// Prepare what boxd will receive while boxd's leaf and process are made.
	done := make(chan error, 1)
	go func() { done <- l.prepare(ctx) }()
	prepared := sync.OnceValue(func() error { return <-done })
	defer func() { _ = prepared(); l.close() }()
	how, err := l.process(h)
	if err != nil {
		return r, err
	}
	how.Now = l.d.cfg.Now()
	how.Prepare = func(r *boxproc.Record, hand *boxproc.Handover) error {
		// On v2 the limits are set later: the files for them appear only once boxd is in its leaf.
		err := l.cg.make(h, leafWork)
		if err == nil && !l.cg.V2 {
			err = l.limit(h)
		}
		if err = errors.Join(err, prepared()); err != nil {
			return err
		}
		*hand, l.hand = l.hand, boxproc.Handover{}
		l.missing = append(l.missing, diskChecked)
		r.Missing = unique(l.missing)
		hand.Config.Jail.InForce = append(hand.Config.Jail.InForce, l.inForce...)
		hand.Config.Jail.Missing = l.missing
		return l.leafFiles(hand)
	}
	var b *boxproc.Boot
	err = errors.Join(l.cg.inside(h, l.leaf, func() { b, r, err = l.d.Dir.Start(ctx, r, how) }), err)
	if err != nil {
		return r, explain(err)
	}
	defer b.Control.Close()
	l.d.mu.Lock()
	l.d.procs[l.spec.Box] = started{b.Proc, l.cg}
	l.d.mu.Unlock()
	st, err := b.Status(ctx)
	if err != nil {
		return r, notReady(err, l.d.Dir.Log(l.spec.Box))
	}
	if l.cg.V2 {
		if err := l.limit(h); err != nil {
			return r, err
		}
	}
	l.inForce = unique(append(st.InForce, l.inForce...))
	if err := proven(l.spec, st.InForce); err != nil {
		return r, err
	}
	if w, ok := wallsOf(r); ok {
		w.Built = st.Walls
		if r, err = withExtra(r, extraWalls, w); err != nil {
			return r, err
		}
		// Watch the walls before any tool runs, so that each later rename on the host is noticed.
		r.Missing = unique(append(st.Missing, l.missing...))
		if lack := l.d.guard(r); lack != "" {
			r.Missing = append(r.Missing, lack)
		}
		err = l.d.Dir.Write(r)
		return r, err
	}
	if missing := unique(append(st.Missing, l.missing...)); !slices.Equal(missing, r.Missing) {
		r.Missing = missing
		return r, l.d.Dir.Write(r)
	}
	return r, nil
}

func unique(list []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// directories makes the session's directories and returns the path of the workspace.
func (l *launch) directories() (workspace string, err error) {
	s := l.spec
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the directory of the box: %w", err)
	}
	workspace = filepath.Join(s.Dir, "workspace")
	if s.Workspace != "" && s.Workspace != workspace {
		workspace = s.Workspace
		if st, err := os.Stat(workspace); err != nil || !st.IsDir() {
			return "", holdfast.Errorf(holdfast.KindNotFound, op, "the workspace directory %s does not exist", holdfast.Quote(workspace))
		}
		uid, gid := s.ToolUID, toolGID(s)
		if s.RootTree != nil {
			uid, gid = 0, s.RootTree.GID
		}
		err = boxproc.Owned(workspace, uid, gid, false, l.d.root)
	} else {
		err = boxproc.Owned(workspace, s.ToolUID, toolGID(s), true, l.d.root)
	}
	if home := l.home(); home != "" {
		err = errors.Join(err, boxproc.Owned(home, s.ToolUID, toolGID(s), true, l.d.root))
	}
	return workspace, errors.Join(
		err,
		boxproc.Owned(filepath.Join(s.Dir, "state"), s.BoxdUID, s.BoxdUID, true, l.d.root),
	)
}

// home returns the home directory of the box; empty if its sessions share the box.
func (l *launch) home() string {
	if l.spec.Shared {
		return ""
	}
	return filepath.Join(l.spec.Dir, "home")
}

// limit applies the limits; it returns an error if one is not in force and limits are required.
func (l *launch) limit(h hierarchy) error {
	inForce, missing := l.cg.limit(h, l.limits)
	l.inForce, l.missing = append(l.inForce, inForce...), append(l.missing, missing...)
	return l.accept(missing)
}

// accept returns an error if limits are missing and the mode requires them.
func (l *launch) accept(missing []string) error {
	if cmp.Or(l.spec.LimitsMode, l.d.cfg.LimitsMode) != sandbox.LimitsRequired || len(missing) == 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "limits of box %s cannot be enforced: %s", holdfast.Quote(string(l.spec.Box)), strings.Join(missing, "; ")).
		WithHint("%s", fixCgroup()+withoutLimits)
}

// needsLandlock reports whether the box must not start without Landlock: the tools of an ordinary user's box, and those
// in a user's own directory, have that user's id on the host, so that a single way around the mounts leads to all of
// the user's files. The other host ids of a root server's boxes own no files except those of the box.
func (l *launch) needsLandlock() bool {
	return (!l.d.root || l.spec.HostUser) && cmp.Or(l.spec.Landlock, l.d.cfg.Landlock) == sandbox.LandlockRequired
}

// process makes boxd's leaf and returns how to start boxd: on v1 in that leaf, on v2 in the box's cgroup.
func (l *launch) process(h hierarchy) (boxproc.Launch, error) {
	how := boxproc.Launch{Argv: []string{"holdfast-boxd", string(l.spec.Box)}, Env: []string{}, Dir: "/", Attr: l.attributes()}
	program, err := l.d.programFile()
	if err != nil {
		return how, err
	}
	how.Program = program
	if err := l.cg.make(h, leafBoxd); err != nil {
		return how, err
	}
	if l.cg.V2 && len(l.cg.Dirs) > 0 {
		box, err := l.cg.openBox()
		if err != nil {
			return how, err
		}
		l.leaf = []*os.File{box}
		how.Attr.UseCgroupFD, how.Attr.CgroupFD = true, int(box.Fd())
		return how, nil
	}
	how.Attr.Cloneflags |= unix.CLONE_NEWCGROUP
	l.leaf, err = l.cg.tasks(leafBoxd)
	return how, err
}

// prepare makes the directories, opens the mounts of the session's and the host's files, and makes the configuration.
func (l *launch) prepare(ctx context.Context) error {
	workspace, err := l.directories()
	if err != nil {
		return err
	}
	mounts, err := plan(&l.d.cfg, workspace, l.home(), l.limits, !l.d.root)
	if err == nil {
		err = l.d.host.compare(mounts, l.last)
	}
	if err != nil {
		return err
	}
	if l.spec.Agent != "" && !l.spec.Shared {
		mounts = append(mounts, agentMount(l.spec.Agent))
	}
	if l.spec.Tree != "" {
		mounts = append(mounts, wire.Mount{Source: l.spec.Tree, Target: sandbox.TreeDir, ReadOnly: true, Flat: true})
	}
	if err := l.mountRootTree(ctx, mounts); err != nil {
		return err
	}
	if l.d.root {
		if err := openTrees(mounts, l.hand.Give); err != nil {
			return err
		}
	}
	state, err := os.Open(filepath.Join(l.spec.Dir, "state"))
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the state directory of the box: %w", err)
	}
	if state, err = l.detached(state); err != nil {
		return err
	}
	l.hand.Config = l.config()
	// Passed by descriptor, because no mount that tools can access contains the directory.
	l.hand.Config.StateFD = l.hand.Give(state)
	l.hand.Config.Jail.Mounts = mounts
	return nil
}

// detached replaces a directory that boxd will hold open by a detached mount of it, in which ".."
// does not lead out. For a server of an ordinary user it returns dir unchanged: there boxd makes the detached mount.
func (l *launch) detached(dir *os.File) (*os.File, error) {
	if !l.d.root {
		return dir, nil
	}
	fd, err := jail.Detached(int(dir.Fd()), "")
	_ = dir.Close()
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot detach the directory %s from the host: %w", holdfast.Quote(dir.Name()), err)
	}
	return os.NewFile(uintptr(fd), dir.Name()), nil
}

// config returns boxd's configuration without open files, mounts and the results of the cgroup limits.
func (l *launch) config() wire.Config {
	return wire.Config{
		Box:       string(l.spec.Box),
		Workspace: boxWorkspace, Home: boxHome, Tmp: boxTmp,
		Env: environment(), OrphanAfter: l.spec.OrphanAfter, SpoolBytes: l.spec.SpoolBytes, Umask: l.spec.Umask,
		Jail: &wire.Jail{
			Hostname: hostname, ToolUID: toolUID, SameUID: !l.d.root,
			NofileSoft: l.limits.NofileSoft, NofileHard: l.limits.NofileHard,
			RequireLandlock: l.needsLandlock(), InForce: slices.Clone(namespaceNames), Walls: l.walls(), Shared: l.shared(),
			RootTree: l.spec.RootTree != nil,
		},
	}
}

func (l *launch) walls() *wire.Walls {
	if l.spec.Walls.Empty() {
		return nil
	}
	w := l.spec.Walls.Canonical()
	return &w
}

// leafFiles opens the files of the box's cgroup leaves that boxd needs, and adds them to hand. On cgroup v2 a root
// server also gives boxd's uid the right to use the leaves.
func (l *launch) leafFiles(hand *boxproc.Handover) error {
	j := hand.Config.Jail
	switch {
	case len(l.cg.Dirs) == 0:
		return nil
	case l.cg.V2:
		if l.d.root {
			if err := l.cg.delegate(l.spec.BoxdUID); err != nil {
				return err
			}
		}
		work, own, err := l.cg.openLeaves()
		if err != nil {
			return err
		}
		if work, err = l.detached(work); err != nil {
			return errors.Join(err, own.Close())
		}
		j.WorkCgroup, j.BoxdProcs = hand.Give(work), hand.Give(own)
		return nil
	}
	work, err := l.cg.tasks(leafWork)
	if err != nil {
		return err
	}
	for i, f := range work {
		j.WorkTasks, j.BoxdTasks = append(j.WorkTasks, hand.Give(f)), append(j.BoxdTasks, hand.Give(l.leaf[i]))
	}
	counters, err := l.cg.counters()
	if err != nil {
		return err
	}
	j.Counters = map[string]int{}
	for name, f := range counters {
		j.Counters[name] = hand.Give(f)
	}
	return nil
}

// attributes returns the attributes of the clone. A root server maps two ids; an ordinary user's
// server maps the user's own uid, and boxd gets ambient capabilities to set the box up.
func (l *launch) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: namespaces}
	if l.d.root {
		boxd := oneID(0, l.spec.BoxdUID)
		a.UidMappings = slices.Concat(boxd, oneID(toolUID, l.spec.ToolUID))
		a.GidMappings = slices.Concat(boxd, oneID(toolUID, toolGID(l.spec)))
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: 0, Gid: 0}
		return a
	}
	a.UidMappings, a.GidMappings = oneID(toolUID, uint32(os.Getuid())), oneID(toolUID, uint32(os.Getgid()))
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_RESOURCE}
	if l.spec.Shared {
		a.AmbientCaps = append(a.AmbientCaps, unix.CAP_SYS_CHROOT)
	}
	if !l.spec.Walls.Empty() {
		// boxd has to build walls even in directories that their owner may not enter.
		a.AmbientCaps = append(a.AmbientCaps, unix.CAP_DAC_OVERRIDE)
	}
	return a
}

// notReady explains why boxd did not become ready. If boxd ended without a report, it quotes boxd's log.
func notReady(err error, log string) error {
	if errors.Is(err, io.EOF) {
		said := "it wrote no log"
		if b, rerr := os.ReadFile(log); rerr == nil {
			said = holdfast.Quote(string(b[max(0, len(b)-400):]))
		}
		err = holdfast.Errorf(holdfast.KindUnavailable, op, "boxd ended before it was ready: %s", said)
	}
	return explain(err)
}

// explain adds a hint to the error of a start that the machine refused.
func explain(err error) error {
	if kind := holdfast.KindOf(err); holdfast.HintOf(err) != "" || kind != holdfast.KindUnavailable && kind != holdfast.KindInternal {
		return err
	}
	e := holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	for _, s := range []struct{ file, bad, hint string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for holdfast that allows userns"},
	} {
		if b, rerr := os.ReadFile(s.file); rerr == nil && strings.TrimSpace(string(b)) == s.bad {
			return e.WithHint("%s", s.hint)
		}
	}
	return e.WithHint("run holdfast doctor to learn what this machine lacks")
}

// environment returns the base environment of tools. LC_CTYPE alone makes text UTF-8: with LANG,
// every program would open a dozen more locale files at its start.
func environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + boxHome, "USER=agent", "LOGNAME=agent",
		"SHELL=/bin/bash", "LC_CTYPE=C.UTF-8", "TMPDIR=" + boxTmp,
	}
}

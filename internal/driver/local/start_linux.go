package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// namespaces are those of every box; the cgroup namespace is boxd's own work on v2.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

var namespaceNames = []string{
	"user-namespace", "mount-namespace", "pid-namespace", "network-namespace", "ipc-namespace", "uts-namespace", "cgroup-namespace",
}

// diskChecked is missing in every box.
const diskChecked = "disk-limit: checked, not enforced"

// launch is one start under way.
type launch struct {
	d      *Driver
	spec   sandbox.Spec
	limits sandbox.Limits
	cg     boxCgroup
	files  []*os.File // inherited from boxproc.FilesFD on
	shared int        // the file among them that is the driver's, not ours to close

	inForce, missing []string
}

// give adds a file to those boxd inherits and returns its number there.
func (l *launch) give(f *os.File) int {
	l.files = append(l.files, f)
	return boxproc.FilesFD + len(l.files) - 1
}

func (l *launch) close() {
	for i, f := range l.files {
		if i != l.shared {
			_ = f.Close()
		}
	}
}

// start starts the box; its lock is held and nothing of it is left from before.
// inForce is what protects and limits it, as measured.
func (d *Driver) start(ctx context.Context, spec sandbox.Spec) (r boxproc.Record, inForce []string, err error) {
	l := &launch{d: d, spec: spec, limits: withDefaults(spec.Limits), shared: -1}
	defer l.close()
	h := d.cg()
	l.cg = h.plan(spec.Box)
	if r, err = withCgroup(boxproc.Record{Box: spec.Box, StartedAt: d.cfg.Now()}, l.cg); err != nil {
		return r, nil, err
	}
	// The record is first: it names what a killed server would leave.
	if err := d.dir.Write(r); err != nil {
		return r, nil, err
	}
	r, err = l.run(ctx, h, r)
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.StartTimeout)
		defer cancel()
		return r, nil, errors.Join(err, d.clear(clean, spec.Box), d.dir.Delete(spec.Box))
	}
	return r, l.inForce, nil
}

func (l *launch) run(ctx context.Context, h hierarchy, r boxproc.Record) (boxproc.Record, error) {
	workspace, err := l.directories()
	if err != nil {
		return r, err
	}
	if err := l.cg.make(h); err != nil {
		return r, err
	}
	// On v2 the files are there only once boxd sits in its leaf.
	limited := make(chan error, 1)
	go func() {
		if l.cg.V2 {
			limited <- nil
			return
		}
		limited <- l.limit(h)
	}()
	cfg, attr, err := l.prepare(workspace)
	if err = errors.Join(<-limited, err); err != nil {
		return r, err
	}
	status, w, err := os.Pipe()
	if err != nil {
		return r, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	defer status.Close()
	cfg.Jail.StatusFD = l.give(w)
	l.missing = append(l.missing, diskChecked)
	r.Missing = unique(l.missing)
	cfg.Jail.InForce = append(append([]string{}, namespaceNames...), l.inForce...)
	cfg.Jail.Missing = l.missing
	program, err := l.d.programFile()
	if err != nil {
		return r, err
	}
	l.shared = len(l.files)
	exe := fmt.Sprintf("/proc/self/fd/%d", l.give(program))
	var p *boxproc.Proc
	err = errors.Join(l.cg.inside(h, func() {
		p, r, err = l.d.dir.Start(ctx, r, boxproc.Launch{
			Path: exe, Argv: []string{"holdfast-boxd", string(l.spec.Box)}, Env: []string{},
			Dir: "/", Attr: attr, Files: l.files, Config: cfg, Now: l.d.cfg.Now(),
		})
	}), err)
	if err != nil {
		return r, explain(err)
	}
	l.d.mu.Lock()
	l.d.procs[l.spec.Box] = p
	l.d.mu.Unlock()
	// Ours must go, or a boxd that dies would not end the pipe.
	l.close()
	l.files = nil
	st, err := l.await(ctx, status)
	if err != nil {
		return r, err
	}
	if l.cg.V2 {
		if err := l.limit(h); err != nil {
			return r, err
		}
	}
	l.inForce = unique(append(st.InForce, l.inForce...))
	if missing := unique(append(st.Missing, l.missing...)); !slices.Equal(missing, r.Missing) {
		r.Missing = missing
		return r, l.d.dir.Write(r)
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

// directories makes the session's directories and returns the workspace.
func (l *launch) directories() (workspace string, err error) {
	s := l.spec
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	workspace = filepath.Join(s.Dir, "workspace")
	if s.Workspace != "" && s.Workspace != workspace {
		workspace = s.Workspace
		if st, err := os.Stat(workspace); err != nil || !st.IsDir() {
			return "", holdfast.Errorf(holdfast.KindNotFound, op, "no directory %s", holdfast.Quote(workspace))
		}
		err = owned(workspace, s.ToolUID, false, l.d.root)
	} else {
		err = owned(workspace, s.ToolUID, true, l.d.root)
	}
	return workspace, errors.Join(
		err,
		owned(filepath.Join(s.Dir, "home"), s.ToolUID, true, l.d.root),
		owned(filepath.Join(s.Dir, "state"), s.BoxdUID, true, l.d.root),
	)
}

// limit applies the limits, or refuses where they are required.
func (l *launch) limit(h hierarchy) error {
	inForce, missing := l.cg.limit(h, l.limits)
	l.inForce, l.missing = append(l.inForce, inForce...), append(l.missing, missing...)
	return l.accept(missing)
}

// accept refuses a box that lacks limits where they are required.
func (l *launch) accept(missing []string) error {
	mode := l.spec.LimitsMode
	if mode == "" {
		mode = l.d.cfg.LimitsMode
	}
	if mode != sandbox.LimitsRequired || len(missing) == 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "limits of box %s cannot be enforced: %s", holdfast.Quote(string(l.spec.Box)), strings.Join(missing, "; ")).
		WithHint("run the server as root or in a unit with Delegate=yes on cgroup v2, or allow limits: best-effort")
}

// prepare opens all that boxd inherits and makes its configuration.
func (l *launch) prepare(workspace string) (cfg wire.Config, attr *syscall.SysProcAttr, err error) {
	mounts, err := plan(&l.d.cfg, workspace, filepath.Join(l.spec.Dir, "home"), l.limits, !l.d.root)
	if err != nil {
		return cfg, nil, err
	}
	if l.d.root {
		if err := openTrees(mounts, l.give); err != nil {
			return cfg, nil, err
		}
	}
	state, err := os.Open(filepath.Join(l.spec.Dir, "state"))
	if err != nil {
		return cfg, nil, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	cfg = l.config()
	// By descriptor: the directory is in no mount that tools can see.
	cfg.State = fmt.Sprintf("/proc/self/fd/%d", l.give(state))
	cfg.Jail.Mounts = mounts
	attr = l.attributes()
	if err := l.cgroupFiles(cfg.Jail, attr); err != nil {
		return cfg, nil, err
	}
	return cfg, attr, nil
}

// config is the configuration but for descriptors, mounts and what is in force.
func (l *launch) config() wire.Config {
	return wire.Config{
		Box:       string(l.spec.Box),
		Workspace: boxWorkspace, Home: boxHome, Tmp: boxTmp,
		Env: environment(l.spec.Env), OrphanAfter: l.spec.OrphanAfter, SpoolBytes: l.spec.SpoolBytes,
		Jail: &wire.Jail{
			Hostname: hostname, ToolUID: toolUID, SameUID: !l.d.root,
			TmpBytes: l.limits.TmpBytes, NofileSoft: l.limits.NofileSoft, NofileHard: l.limits.NofileHard,
			WorkCgroup: -1, RequireSeccomp: true,
		},
	}
}

func (l *launch) cgroupFiles(j *wire.Jail, attr *syscall.SysProcAttr) error {
	if l.cg.V2 && l.d.root && len(l.cg.Dirs) > 0 {
		if err := l.cg.delegate(l.spec.BoxdUID); err != nil {
			return err
		}
	}
	return l.leafFiles(j, attr)
}

// leafFiles opens the leaves for boxd.
func (l *launch) leafFiles(j *wire.Jail, attr *syscall.SysProcAttr) error {
	if len(l.cg.Dirs) == 0 {
		attr.Cloneflags |= unix.CLONE_NEWCGROUP
		return nil
	}
	if l.cg.V2 {
		box, work, own, err := l.cg.open2()
		if err != nil {
			return err
		}
		l.give(box)
		j.WorkCgroup, j.BoxdProcs = l.give(work), l.give(own)
		attr.UseCgroupFD, attr.CgroupFD = true, int(box.Fd())
		return nil
	}
	attr.Cloneflags |= unix.CLONE_NEWCGROUP
	for leaf, into := range map[string]*[]int{leafWork: &j.WorkTasks, leafBoxd: &j.BoxdTasks} {
		files, err := l.cg.tasks(leaf)
		if err != nil {
			return err
		}
		for _, f := range files {
			*into = append(*into, l.give(f))
		}
	}
	counters, err := l.cg.counters()
	if err != nil {
		return err
	}
	j.Counters = map[string]int{}
	for name, f := range counters {
		j.Counters[name] = l.give(f)
	}
	return nil
}

// attributes are those of the clone: two one-line maps for a root server, the
// user's own uid for any other, who needs ambient capabilities to set the box up.
func (l *launch) attributes() *syscall.SysProcAttr {
	one := func(inside int, host uint32) syscall.SysProcIDMap {
		return syscall.SysProcIDMap{ContainerID: inside, HostID: int(host), Size: 1}
	}
	a := &syscall.SysProcAttr{Cloneflags: namespaces}
	if l.d.root {
		ids := []syscall.SysProcIDMap{one(0, l.spec.BoxdUID), one(toolUID, l.spec.ToolUID)}
		a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = ids, ids, true
		a.Credential = &syscall.Credential{Uid: 0, Gid: 0}
		return a
	}
	a.UidMappings = []syscall.SysProcIDMap{one(toolUID, uint32(os.Getuid()))}
	a.GidMappings = []syscall.SysProcIDMap{one(toolUID, uint32(os.Getgid()))}
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_RESOURCE}
	return a
}

// await reads what boxd says of its jail.
func (l *launch) await(ctx context.Context, status deadline) (wire.JailStatus, error) {
	stop := context.AfterFunc(ctx, func() { _ = status.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := io.ReadAll(io.LimitReader(status, 1<<20))
	var st wire.JailStatus
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &st)
	} else if err == nil {
		err = errors.New("boxd ended: " + l.said())
	}
	if err != nil {
		return st, explain(holdfast.Errorf(holdfast.KindUnavailable, op, "box %s did not get ready: %w", holdfast.Quote(string(l.spec.Box)), err))
	}
	if st.Err != nil {
		return st, explain(st.Err.Err(op))
	}
	return st, nil
}

// said is the end of boxd's log.
func (l *launch) said() string {
	b, err := os.ReadFile(l.d.dir.Log(l.spec.Box))
	if err != nil {
		return "it left no log"
	}
	return holdfast.Quote(string(b[max(0, len(b)-400):]))
}

// explain adds what to do about a start that the machine refused.
func explain(err error) error {
	if holdfast.HintOf(err) != "" {
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
	return e.WithHint("holdfast doctor shows what this machine lacks")
}

// environment is the base environment of tools; the spec's entries come last and
// replace the base's of the same name. LC_CTYPE alone makes text UTF-8: LANG would
// have every program open a dozen more locale files as it starts.
func environment(extra []string) []string {
	base := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + boxHome, "USER=agent", "LOGNAME=agent",
		"SHELL=/bin/bash", "LC_CTYPE=C.UTF-8", "TMPDIR=" + boxTmp,
	}
	at := map[string]int{}
	var out []string
	for _, kv := range append(base, extra...) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if i, seen := at[name]; seen {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

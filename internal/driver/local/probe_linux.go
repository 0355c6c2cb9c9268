package local

import (
	"context"
	"encoding/hex"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// capabilities are the capabilities that Probe reports, in this order. If one is missing that a
// box must have, the driver is unusable; other missing ones are listed with each box.
var capabilities = []struct {
	name string
	need need
	fix  func() string
}{
	{"user-namespace", always, nil},
	{"mount-namespace", always, nil},
	{"pid-namespace", always, nil},
	{"network-namespace", always, nil},
	{"ipc-namespace", always, nil},
	{"uts-namespace", always, nil},
	{"cgroup-namespace", always, nil},
	{"read-only-root", always, nil},
	{"no-capabilities", always, nil},
	{"no-new-privs", always, nil},
	{"seccomp", always, nil},
	{"no-nested-namespaces", optional, advice("a kernel with CONFIG_USER_NS and CONFIG_SYSCTL")},
	{"landlock", asLandlock, advice("boot a kernel with lsm=landlock,… in its command line")},
	{"signal-scope", optional, advice("kernel 6.12 or later")},
	{"cgroup-leaves", optional, fixCgroup},
	{"memory-limit", asLimit, fixCgroup},
	{"pids-limit", asLimit, fixCgroup},
	{"cpu-limit", asLimit, fixCgroup},
	{"freeze", optional, fixCgroup},
	{"disk-limit", byDesign, nil},
}

// need is the condition under which a box must have a capability.
type need int

const (
	optional need = iota
	always
	asLimit    // needed only if the driver's configuration requires limits
	asLandlock // needed only if the server runs as an ordinary user and its configuration requires Landlock
	byDesign   // never needed, because boxes have it on no machine; Probe lists it as a note
)

func advice(text string) func() string { return func() string { return text } }

// fixCgroup returns advice for a server that is not allowed to make cgroups.
func fixCgroup() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil && os.Getuid() != 0 {
		return "systemd-run --user --scope -p Delegate=yes holdfast serve" // on cgroup v2 an ordinary user gets a cgroup from systemd
	}
	return "run the server as root"
}

const (
	// withoutLimits is the end of hints that name the setting which allows boxes without limits.
	withoutLimits = "; or without limits: holdfast serve --set limits.mode=best-effort"
	// fixLandlock is the advice for a kernel without Landlock.
	fixLandlock = "boot a kernel with lsm=landlock,… in its command line, or run the server as root; or without it: holdfast serve --set landlock=best-effort"
)

// Probe implements sandbox.Driver: it starts a box, freezes and thaws it, and removes it again.
func (d *Driver) Probe(ctx context.Context) sandbox.Probe {
	p := sandbox.Probe{Driver: d.Name(), Isolates: true}
	inForce, missing, freeze, err := d.tryOut(ctx, false)
	if err != nil {
		p.Reason, p.Hint = err.Error(), holdfast.HintOf(err)
		p.Capabilities = []sandbox.Capability{{Name: "start", Detail: strings.TrimSuffix(p.Reason+": "+p.Hint, ": "), Required: true}}
		return p
	}
	if freeze != nil {
		missing = append(missing, "freeze: "+freeze.Error())
	} else {
		inForce = append(inForce, "freeze")
	}
	p.Usable = true
	for _, c := range capabilities {
		found := sandbox.Capability{Name: c.name, Note: c.need == byDesign, Detail: "not measured"}
		found.Required = c.need == always || c.need == asLimit && d.cfg.LimitsMode == sandbox.LimitsRequired ||
			c.need == asLandlock && !d.root && d.cfg.Landlock == sandbox.LandlockRequired
		for _, s := range inForce {
			if s == c.name || strings.HasPrefix(s, c.name+" ") {
				found.OK, found.Detail = true, "in force"+strings.TrimPrefix(s, c.name)
			}
		}
		for _, s := range missing {
			if reason, ok := strings.CutPrefix(s, c.name+": "); ok {
				found.OK, found.Detail = false, reason
			}
		}
		if !found.OK && c.fix != nil {
			found.Fix = c.fix()
		}
		if found.Required && !found.OK && p.Usable {
			p.Usable, p.Reason, p.Hint = false, c.name+": "+found.Detail, found.Fix
			if c.need == asLimit {
				p.Reason, p.Hint = p.Reason+"; limits.mode requires it", found.Fix+withoutLimits
			}
			if c.need == asLandlock {
				p.Reason, p.Hint = p.Reason+"; the setting landlock requires it", fixLandlock
			}
		}
		p.Capabilities = append(p.Capabilities, found)
	}
	if d.root && d.cfg.RootTrees {
		p.Capabilities = append(p.Capabilities, rootTrees(ctx, d))
	}
	return p
}

// tryOut runs a box briefly and returns its protections. If ofRoot is set, its workspace is a directory of root. freeze
// is the error of the attempt to freeze the box.
func (d *Driver) tryOut(ctx context.Context, ofRoot bool) (inForce, missing []string, freeze, err error) {
	var id [4]byte
	if _, err := io.ReadFull(d.cfg.Rand, id[:]); err != nil {
		return nil, nil, nil, holdfast.Errorf(holdfast.KindInternal, op, "cannot read random bytes for the id of a test box: %w", err)
	}
	dir, err := os.MkdirTemp(d.Dir.Path(), "probe-")
	if err != nil {
		return nil, nil, nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make a directory for a test box: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	spec := sandbox.Spec{
		Box: holdfast.BoxID("w-probe-" + hex.EncodeToString(id[:])), Dir: dir,
		BoxdUID: d.cfg.ProbeUID, ToolUID: d.cfg.ProbeUID + 1, LimitsMode: sandbox.LimitsBestEffort,
		Landlock: sandbox.LandlockBestEffort,
	}
	if ofRoot {
		spec.HostUser, spec.Landlock = true, ""
		spec.Workspace = filepath.Join(dir, "tree")
		if spec.RootTree, err = makeRootTree(spec.Workspace); err != nil {
			return nil, nil, nil, err
		}
	}
	d.probing(spec.Box, true)
	defer d.probing(spec.Box, false)
	unlock, err := d.Locks.Lock(ctx, spec.Box)
	if err != nil {
		return nil, nil, nil, err
	}
	r, inForce, err := d.startAgain(ctx, spec)
	unlock()
	if err != nil {
		return nil, nil, nil, err
	}
	if freeze = d.Freeze(ctx, spec.Box); freeze == nil {
		freeze = d.Thaw(ctx, spec.Box)
	}
	return inForce, r.Missing, freeze, d.Remove(context.WithoutCancel(ctx), spec.Box)
}

func (d *Driver) probed() map[holdfast.BoxID]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.probes)
}

// probing records that a probe uses a box (yes), so that List leaves the box out, or that the probe has ended.
func (d *Driver) probing(box holdfast.BoxID, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.probes[box] = true; !yes {
		delete(d.probes, box)
	}
}

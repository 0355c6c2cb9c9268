package local

import (
	"context"
	"encoding/hex"
	"io"
	"os"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// capabilities are what Probe reports, in this order. A required one that is
// missing makes the driver unusable; the others are listed with each box.
var capabilities = []struct {
	name     string
	required bool
	fix      string
}{
	{"user-namespace", true, ""},
	{"mount-namespace", true, ""},
	{"pid-namespace", true, ""},
	{"network-namespace", true, ""},
	{"ipc-namespace", true, ""},
	{"uts-namespace", true, ""},
	{"cgroup-namespace", true, ""},
	{"read-only-root", true, ""},
	{"no-capabilities", true, ""},
	{"no-new-privs", true, ""},
	{"seccomp", true, ""},
	{"no-nested-namespaces", false, ""},
	{"landlock", false, "boot a kernel with lsm=landlock,… in its command line"},
	{"signal-scope", false, "kernel 6.12 or later"},
	{"cgroup-leaves", false, fixCgroup},
	{"memory-limit", false, fixCgroup},
	{"pids-limit", false, fixCgroup},
	{"cpu-limit", false, fixCgroup},
	{"freeze", false, fixCgroup},
	{"disk-limit", false, ""},
}

const fixCgroup = "run the server as root, or in a unit with Delegate=yes on cgroup v2"

// Probe implements sandbox.Driver: it starts a box, freezes and thaws it, and
// removes it again.
func (d *Driver) Probe(ctx context.Context) sandbox.Probe {
	p := sandbox.Probe{Driver: d.Name(), Isolates: true}
	inForce, missing, freeze, err := d.tryOut(ctx)
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
		found := sandbox.Capability{Name: c.name, Required: c.required, Detail: "not measured"}
		for _, s := range inForce {
			if s == c.name || strings.HasPrefix(s, c.name+" ") {
				found.OK, found.Detail = true, "in force"+strings.TrimPrefix(s, c.name)
			}
		}
		for _, s := range missing {
			if why, ok := strings.CutPrefix(s, c.name+": "); ok {
				found.OK, found.Detail = false, why
				if c.fix != "" && !strings.Contains(why, c.fix) {
					found.Detail += "; fix: " + c.fix
				}
			}
		}
		if c.required && !found.OK {
			p.Usable, p.Reason, p.Hint = false, c.name+": "+found.Detail, c.fix
		}
		p.Capabilities = append(p.Capabilities, found)
	}
	return p
}

// tryOut runs a box for a moment. freeze is why it could not be frozen.
func (d *Driver) tryOut(ctx context.Context) (inForce, missing []string, freeze, err error) {
	var id [4]byte
	if _, err := io.ReadFull(d.cfg.Rand, id[:]); err != nil {
		return nil, nil, nil, holdfast.Errorf(holdfast.KindInternal, op, "no randomness: %w", err)
	}
	dir, err := os.MkdirTemp(d.dir.Path(), "probe-")
	if err != nil {
		return nil, nil, nil, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	spec := sandbox.Spec{
		Box: holdfast.BoxID("w-probe-" + hex.EncodeToString(id[:])), Dir: dir,
		BoxdUID: d.cfg.ProbeUID, ToolUID: d.cfg.ProbeUID + 1, LimitsMode: sandbox.LimitsBestEffort,
	}
	unlock, err := d.locks.Lock(ctx, spec.Box)
	if err != nil {
		return nil, nil, nil, err
	}
	r, inForce, err := d.start(ctx, spec)
	unlock()
	if err != nil {
		return nil, nil, nil, err
	}
	if freeze = d.Freeze(ctx, spec.Box); freeze == nil {
		freeze = d.Thaw(ctx, spec.Box)
	}
	return inForce, r.Missing, freeze, d.Remove(context.WithoutCancel(ctx), spec.Box)
}

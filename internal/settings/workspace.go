package settings

import (
	"crypto/sha256"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/policy"
)

// Workspace reads the settings in a session's workspace, where the agent can write. They only
// tighten; if they cannot be read, their layer refuses everything. Not safe for concurrent use.
type Workspace struct {
	// Dir is the workspace's directory on the host, Session the session that it belongs to.
	Dir     string
	Session holdfast.SessionID
	// Same are the sums of files that add nothing: those of the agent's version, which a new
	// workspace is seeded with.
	Same map[string][sha256.Size]byte
	// Tools are the tools that rules may name besides the standard ones.
	Tools []policy.Tool

	looked bool
	stamps [2]rooted.Stamp
	faults [2]string
	layer  policy.Config
}

// Layer returns what the settings added to a policy at the last Look.
func (w *Workspace) Layer() policy.Config { return w.layer }

// Look reads the settings if one of their files changed since the last Look, and reports whether
// Layer returns something else now.
func (w *Workspace) Look() bool {
	var stamps [2]rooted.Stamp
	var faults [2]string
	for i, name := range Files() {
		var err error
		if stamps[i], err = rooted.Stat(w.Dir, name); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			faults[i] = err.Error()
		}
	}
	if w.looked && stamps == w.stamps && faults == w.faults {
		return false
	}
	before := w.layer.Refuse
	w.looked, w.stamps, w.faults = true, stamps, faults
	w.layer = w.read()
	if w.layer.Refuse != "" {
		w.layer.Refuse += "; nothing is allowed until the user mends it: holdfast files put " + string(w.Session) + " FILE, or cat and rm in place of put"
	}
	return w.layer.Refuse != before || w.layer.Refuse == ""
}

func (w *Workspace) read() policy.Config {
	files := map[string][]byte{}
	for i, name := range Files() {
		if w.faults[i] != "" {
			return unreadable(w.faults[i])
		}
		if w.stamps[i] == (rooted.Stamp{}) {
			continue
		}
		data, st, err := rooted.ReadFile(w.Dir, name, MaxClaude)
		switch {
		case holdfast.IsKind(err, holdfast.KindNotFound):
			w.stamps[i] = rooted.Stamp{}
			continue
		case err != nil:
			return unreadable(err.Error())
		}
		w.stamps[i] = st
		if sum, ok := w.Same[name]; !ok || sha256.Sum256(data) != sum {
			files[name] = data
		}
	}
	cfg, err := Tightening(files, w.Tools)
	if err != nil {
		return unreadable(err.Error())
	}
	return cfg
}

func unreadable(why string) policy.Config {
	return policy.Config{Refuse: "the workspace's settings cannot be read: " + strings.TrimPrefix(why, "agent settings: ")}
}

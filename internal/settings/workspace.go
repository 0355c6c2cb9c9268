package settings

import (
	"context"
	"crypto/sha256"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/hostgit"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/policy"
)

// Tree reads regular files of a workspace.
type Tree interface {
	// Stat and ReadFile fail with not_found if there is no such file. The stamp changes when the file
	// changes.
	Stat(ctx context.Context, name string) (rooted.Stamp, error)
	ReadFile(ctx context.Context, name string, most int64) ([]byte, rooted.Stamp, error)
}

// Workspace reads the settings in a session's workspace, where the agent can write. They only
// tighten the policy; if they cannot be read, their layer denies everything. Not safe for
// concurrent use.
type Workspace struct {
	// Tree reads the workspace's files, Session is the session that it belongs to.
	Tree    Tree
	Session holdfast.SessionID
	// Same are the hashes of the settings files of the agent's version, with which a new workspace is
	// seeded. A workspace file with the same hash adds nothing.
	Same map[string][sha256.Size]byte
	// Git finds the paths that the git of the host obeys, if the workspace is a directory of a user's own; nil in any
	// other workspace.
	Git *hostgit.Reader
	// Tools are the tools that rules may name besides the standard ones.
	Tools []policy.Tool

	looked bool
	stamps [2]rooted.Stamp
	faults [2]string
	layer  policy.Config
}

// Layer returns the policy layer of the settings as of the last Look.
func (w *Workspace) Layer() policy.Config { return w.layer }

// IsLent reports whether the workspace is a directory of a user's own.
func (w *Workspace) IsLent() bool { return w.Git != nil }

// HostGit returns the paths that the git of the host obeys, as hostgit.Reader does.
func (w *Workspace) HostGit() ([]string, error) {
	if w.Git == nil {
		return nil, nil
	}
	return w.Git.Held()
}

// Look reads the settings, and the paths that the git of the host obeys, if one of their files changed since the last
// Look. It reports whether the result of Layer or HostGit changed. It fails only if ctx ended while a file could not be
// read, because then the file may not be at fault.
func (w *Workspace) Look(ctx context.Context) (changed bool, err error) {
	if changed, err = w.look(ctx); err != nil || w.Git == nil {
		return changed, err
	}
	return w.Git.Look() || changed, nil
}

func (w *Workspace) look(ctx context.Context) (changed bool, err error) {
	var stamps [2]rooted.Stamp
	var faults [2]string
	for i, name := range Files() {
		var err error
		if stamps[i], err = w.Tree.Stat(ctx, name); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			faults[i] = err.Error()
		}
	}
	if w.looked && stamps == w.stamps && faults == w.faults {
		return false, nil
	}
	before := w.layer
	w.looked, w.stamps, w.faults = true, stamps, faults
	if w.layer = w.read(ctx); w.layer.Refuse != "" && ctx.Err() != nil {
		w.looked, w.layer = false, before
		return false, ctx.Err()
	}
	if w.layer.Refuse != "" {
		w.layer.Refuse += "; every call is denied until the user corrects the file: holdfast files put " + string(w.Session) + " FILE, or cat and rm in place of put"
	}
	return w.layer.Refuse != before.Refuse || w.layer.Refuse == "", nil
}

func (w *Workspace) read(ctx context.Context) policy.Config {
	files := map[string][]byte{}
	for i, name := range Files() {
		if w.faults[i] != "" {
			return unreadable(w.faults[i])
		}
		if w.stamps[i] == (rooted.Stamp{}) {
			continue
		}
		data, st, err := w.Tree.ReadFile(ctx, name, MaxClaude)
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

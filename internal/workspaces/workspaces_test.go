package workspaces_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/secrets"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// home is a server's workspaces, with a data directory and a directory for trees of the user's own.
type home struct {
	*workspaces.Workspaces
	store *sqlite.Store
	vault *secrets.Vault
	// journal tells the Workspaces of the last restart which sessions join and leave.
	journal *journal.Journal
	data    string
	own     string
	cfg     workspaces.Config
	log     logged
	// tried are the directories of root that were tried out.
	tried []string
	// clock is what the server's clock shows, in nanoseconds: an hour after the machine's, and it stands still.
	clock atomic.Int64
}

// later moves the server's clock.
func (h *home) later(by time.Duration) { h.clock.Add(int64(by)) }

// restart opens the workspaces again, as the next server does.
func (h *home) restart(t *testing.T) {
	t.Helper()
	var err error
	if h.Workspaces, err = workspaces.Open(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
	h.journal = journal.New(journal.Config{Store: workspaces.Following{Store: h.store.Sessions, To: h.Workspaces}, Leases: h.store.Leases})
	if err := h.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) *home {
	t.Helper()
	// The directories of t.TempDir may belong to root, which no workspace may.
	top := t.TempDir()
	h := &home{data: filepath.Join(top, "data"), own: filepath.Join(top, "own")}
	for _, dir := range []string{h.data, h.own, filepath.Join(h.data, "workspaces")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if h.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(h.data, "holdfast.db")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.store.Close() })
	refuse := func(bad string) func(string) error {
		return func(v string) error {
			if v == bad {
				return holdfast.Errorf(holdfast.KindInvalid, "test", "%s is bad", v)
			}
			return nil
		}
	}
	ring, err := seal.OpenKeyring(filepath.Join(h.data, "secrets.key"), nil, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.vault = secrets.New(h.store.Secrets, ring, time.Now)
	h.cfg = workspaces.Config{
		Store: h.store.Workspaces, Data: h.data, CheckModel: refuse("bad"),
		CheckNetwork: func(list []string) error { return refuse("bad")(strings.Join(list, "")) },
		CheckRuntime: func(name string, _ holdfast.Trust) error { return refuse("bad")(name) },
		CheckRule:    refuse("bad"), CheckLimits: config.Defaults().Limits.Check, LimitKeys: config.LimitKeys(),
		CheckEnv: func(env map[string]string) error { return choices.CheckEnv("workspace", env) }, Sealer: h.vault,
		Engine: func() workspaces.Engine { return nil }, Boxes: func() workspaces.Boxes { return nil },
		Save: func(context.Context, workspaces.List) ([]holdfast.SessionID, error) {
			return nil, errors.New("not asked")
		},
		Leave: func(ctx context.Context, _ journal.Row, c journal.Change) error {
			_, err := h.journal.Commit(ctx, c)
			return err
		},
		Running: func(context.Context, holdfast.SessionID) (bool, error) { return false, errors.New("not asked") },
		Make:    func(tree string, _ int64) error { return os.MkdirAll(tree, 0o700) },
		TryRootTree: func(_ context.Context, dir string, inode uint64, gid uint32) error {
			h.tried = append(h.tried, fmt.Sprint(dir, " ", inode, " ", gid))
			return refuse("bad")(filepath.Base(dir))
		},
		Clock: func() time.Time { return time.Unix(0, h.clock.Load()) },
		Log:   h.log.logger(),
	}
	h.clock.Store(time.Now().Add(time.Hour).UnixNano())
	h.restart(t)
	return h
}

// dir makes a directory of the user's own.
func (h *home) dir(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(h.own, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(path, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func isKind(t *testing.T, err error, kind holdfast.Kind, quoted ...string) {
	t.Helper()
	if !holdfast.IsKind(err, kind) || holdfast.HintOf(err) == "" && kind != holdfast.KindNotFound {
		t.Errorf("error %v (%s), hint %q; want %s with a hint", err, holdfast.KindOf(err), holdfast.HintOf(err), kind)
	}
	for _, q := range quoted {
		if err == nil || !strings.Contains(err.Error(), q) {
			t.Errorf("error %v does not name %s", err, q)
		}
	}
}

// TestRefusedDirectories: what must not be lent is refused, and says why.
func TestRefusedDirectories(t *testing.T) {
	h := open(t)
	good := h.dir(t, "good")
	h.dir(t, "good/below")
	link := filepath.Join(h.own, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(h.own, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	user, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{Dir: good}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		kind holdfast.Kind
	}{
		{"relative", holdfast.KindInvalid},
		{"/", holdfast.KindInvalid},
		{user, holdfast.KindInvalid},
		{link, holdfast.KindInvalid},
		{file, holdfast.KindInvalid},
		{filepath.Join(h.own, "missing"), holdfast.KindNotFound},
		{h.data, holdfast.KindInvalid},
		{filepath.Dir(h.data), holdfast.KindInvalid},
		{filepath.Join(good, "below"), holdfast.KindConflict},
		{h.own, holdfast.KindConflict},
	} {
		if c.dir == h.own && os.Getuid() == 0 {
			c.kind = holdfast.KindDenied // it belongs to root
		}
		_, err := h.For(t.Context(), "", c.dir, "")
		if !holdfast.IsKind(err, c.kind) {
			t.Errorf("%s: %v, want %s", c.dir, err, c.kind)
		}
	}
	if list, err := h.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("workspaces %v, %v; want the good one alone", list, err)
	}
}

// TestHZ8_DirectoriesOfRoot: a directory of root is refused with the setting that allows it. With the setting, the driver
// tries it out; without it again, sessions in such a directory do not run.
func TestHZ8_DirectoriesOfRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root's server has such directories")
	}
	h := open(t)
	var st unix.Stat_t
	for _, name := range []string{"roots", "bad"} {
		dir := h.dir(t, name)
		if err := errors.Join(os.Chown(dir, 0, 4343), unix.Lstat(dir, &st)); err != nil {
			t.Fatal(err)
		}
	}
	roots, bad := filepath.Join(h.own, "roots"), filepath.Join(h.own, "bad")
	refused := func(what string, err error) {
		t.Helper()
		if isKind(t, err, holdfast.KindDenied, roots); !strings.Contains(holdfast.HintOf(err), "allow_root_trees") {
			t.Errorf("%s: the hint %q does not name the setting", what, holdfast.HintOf(err))
		}
	}
	_, err := h.For(t.Context(), "", roots, "")
	refused("a session", err)
	_, err = h.Create(t.Context(), holdfast.CreateWorkspace{Dir: roots})
	refused("a workspace", err)
	h.cfg.RootTrees = true
	h.restart(t)
	if _, err := h.For(t.Context(), "", bad, ""); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a directory that fails the trial: %v", err)
	}
	w, err := h.For(t.Context(), "", roots, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Lstat(roots, &st); err != nil || len(h.tried) != 2 || h.tried[1] != fmt.Sprint(roots, " ", st.Ino, " ", 4343) {
		t.Errorf("tried out %q, %v", h.tried, err)
	}
	r := workspaces.Record{Workspace: *w, Inode: st.Ino}
	if err := h.Intact(r); err != nil {
		t.Errorf("the directory: %v", err)
	}
	h.cfg.RootTrees = false
	h.restart(t)
	refused("its sessions", h.Intact(r))
	_, err = h.For(t.Context(), string(w.ID), "", "")
	refused("a new session", err)
}

// TestOneWorkspaceForADirectory: requests at the same time, and by another path, find the same workspace.
func TestOneWorkspaceForADirectory(t *testing.T) {
	h := open(t)
	dir := h.dir(t, "My Site")
	above := filepath.Join(h.own, "above")
	if err := os.Symlink(h.own, above); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, path := range []string{dir, dir + "/", filepath.Join(above, "My Site")} {
		for range 7 {
			all.Go(func() {
				w, err := h.For(t.Context(), "", path, "")
				if err != nil || w.ID != "my-site" || w.Dir != dir {
					t.Errorf("workspace %+v, %v", w, err)
				}
			})
		}
	}
	all.Wait()
	if w, err := h.For(t.Context(), "my-site", "", ""); err != nil || w.Dir != dir {
		t.Errorf("by its slug: %+v, %v", w, err)
	}
	_, err := h.Create(t.Context(), holdfast.CreateWorkspace{Dir: dir})
	isKind(t, err, holdfast.KindConflict, "my-site")
	_, err = h.For(t.Context(), "my-site", dir, "")
	isKind(t, err, holdfast.KindInvalid, "my-site")
	if w, err := h.For(t.Context(), "", "", ""); w != nil || err != nil {
		t.Errorf("without either: %+v, %v", w, err)
	}
}

// TestAnotherDirectoryIsNotTheSame: a directory that was moved away, or replaced, is missed; nothing is made.
func TestAnotherDirectoryIsNotTheSame(t *testing.T) {
	h := open(t)
	dir := h.dir(t, "one")
	w, err := h.For(t.Context(), "", dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	_, err = h.For(t.Context(), string(w.ID), "", "")
	isKind(t, err, holdfast.KindConflict, dir)
	h.dir(t, "one")
	_, err = h.For(t.Context(), string(w.ID), "", "")
	isKind(t, err, holdfast.KindConflict, "another one is there now")
	_, err = h.For(t.Context(), "", dir, "")
	isKind(t, err, holdfast.KindConflict, "another one is there now")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := h.For(t.Context(), string(w.ID), "", ""); err != nil {
		t.Errorf("after it is back: %v", err)
	}
}

// TestOpenedDirectory: what was opened at a workspace's path is its directory only with the same type, inode and owner.
func TestOpenedDirectory(t *testing.T) {
	h := open(t)
	w, err := h.For(t.Context(), "", h.dir(t, "one"), "")
	if err != nil {
		t.Fatal(err)
	}
	r := workspaces.Record{Workspace: *w, Inode: 5, UID: 7, GID: 9}
	for _, c := range []struct {
		isDir bool
		inode uint64
		uid   uint32
		want  string
	}{
		{true, 5, 7, ""},
		{true, 6, 7, "another one is there now"},
		{false, 6, 7, "another one is there now"},
		{true, 5, 8, "it belonged to uid 7, and belongs to uid 8 now"},
		{false, 5, 8, "another one is there now"},
	} {
		switch err := workspaces.IntactAs(h.Workspaces, r, c.isDir, c.inode, c.uid); {
		case c.want != "":
			isKind(t, err, holdfast.KindConflict, c.want)
			if hint := holdfast.HintOf(err); strings.HasPrefix(hint, "chown 7:9 "+r.Dir+";") != (c.isDir && c.inode == r.Inode) {
				t.Errorf("%s: hint %s", c.want, hint)
			}
		case err != nil:
			t.Errorf("the directory itself: %v", err)
		}
	}
}

// TestSlugsOfNames: a workspace without a name of its own gets one from its title or directory (WS-R1).
func TestSlugsOfNames(t *testing.T) {
	h := open(t)
	long := strings.Repeat("a", 70)
	for _, c := range []struct{ title, want string }{
		{"My Site!", "my-site"},
		{"my site", "my-site-2"},
		{"--", "workspace"},
		{"Größe", "gr-e"},
		{long, long[:63]},
		{long, long[:61] + "-2"},
	} {
		w, err := h.Create(t.Context(), holdfast.CreateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: &c.title}})
		if err != nil || string(w.ID) != c.want {
			t.Errorf("%q: %q, %v; want %q", c.title, w.ID, err, c.want)
		}
	}
}

// TestSettingsOfWorkspaces: an update changes only what it names (WS-R14), and refuses what no session
// could have.
//
// WS-R10, WS-R27.
func TestSettingsOfWorkspaces(t *testing.T) {
	h := open(t)
	w, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: "a", WorkspaceSettings: holdfast.WorkspaceSettings{
		Title: text("one"), DefaultTrust: text("sandboxed"), Model: text("m"), Network: &[]string{"x"},
	}})
	if err != nil || w.DefaultTrust != holdfast.Untrusted {
		t.Fatal(w, err)
	}
	if w, err = h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: text("two")}}); err != nil {
		t.Fatal(err)
	}
	if w.Title != "two" || w.Model != "m" || w.DefaultTrust != holdfast.Untrusted || len(w.Network) != 1 || w.Revision != 2 {
		t.Errorf("after an update: %+v", w)
	}
	for name, s := range map[string]holdfast.WorkspaceSettings{
		"trust": {DefaultTrust: text("root")}, "model": {Model: text("bad")}, "runtime": {Runtime: text("bad")},
		"network": {Network: &[]string{"bad"}}, "title": {Title: text("a\x00")}, "long": {Title: text(strings.Repeat("x", 501))},
	} {
		if _, err := h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: s}); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = h.Update(t.Context(), "a", holdfast.UpdateWorkspace{Revision: 1})
	isKind(t, err, holdfast.KindConflict, "2")
	if got, err := h.Get(t.Context(), "a"); err != nil || got.Revision != 2 {
		t.Errorf("after refusals: %+v, %v", got, err)
	}
	if _, err = h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{DefaultTrust: text("")}}); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Get(t.Context(), "a"); err != nil || got.DefaultTrust != "" {
		t.Errorf("after the trust was taken back: %+v, %v", got, err)
	}
}

// TestLimitsAndRulesOfWorkspaces: an update changes those limits and permission rules whose keys it names. It is refused if
// a limit is above the server's, if a rule cannot be read, or if the result does not fit into config.yaml.
//
// WS-R14, WS-R27.
func TestLimitsAndRulesOfWorkspaces(t *testing.T) {
	h := open(t)
	type limits = map[string]string
	type rules = map[string][]string
	h.create(t, "a", holdfast.WorkspaceSettings{
		Limits: limits{"memory": "1024MiB", "cpus": "1"}, Permissions: rules{"allow": {"Read"}, "deny": {"Bash(rm *)", "Edit(a)"}},
	})
	for _, c := range []struct {
		set    holdfast.WorkspaceSettings
		limits limits
		rules  rules
	}{
		{holdfast.WorkspaceSettings{Title: text("x")}, limits{"memory": "1GiB", "cpus": "1"}, rules{"allow": {"Read"}, "deny": {"Bash(rm *)", "Edit(a)"}}},
		{holdfast.WorkspaceSettings{Limits: limits{"memory": "", "pids": "64"}}, limits{"pids": "64", "cpus": "1"}, rules{"allow": {"Read"}, "deny": {"Bash(rm *)", "Edit(a)"}}},
		{holdfast.WorkspaceSettings{Permissions: rules{"allow": {}, "ask": {"Write"}}}, limits{"pids": "64", "cpus": "1"}, rules{"ask": {"Write"}, "deny": {"Bash(rm *)", "Edit(a)"}}},
		{holdfast.WorkspaceSettings{Limits: limits{"pids": "", "cpus": ""}, Permissions: rules{"ask": {}, "deny": {}}}, nil, nil},
	} {
		w, err := h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: c.set})
		if err != nil || !reflect.DeepEqual(w.Limits, c.limits) || !reflect.DeepEqual(w.Permissions, c.rules) {
			t.Errorf("after %+v: %+v, %v", c.set, w, err)
		}
		if got := h.get(t, "a"); !reflect.DeepEqual(got, w) || got.ConfigError != "" {
			t.Errorf("stored after %+v: %+v", c.set, got)
		}
	}
	many := make([]string, 2000)
	for i := range many {
		many[i] = "Read"
	}
	for name, c := range map[string]struct {
		set  holdfast.WorkspaceSettings
		kind holdfast.Kind
	}{
		"key of a limit":   {holdfast.WorkspaceSettings{Limits: limits{"ram": "1GiB"}}, holdfast.KindInvalid},
		"limit":            {holdfast.WorkspaceSettings{Limits: limits{"memory": "much"}}, holdfast.KindInvalid},
		"low limit":        {holdfast.WorkspaceSettings{Limits: limits{"pids": "1"}}, holdfast.KindInvalid},
		"high limit":       {holdfast.WorkspaceSettings{Limits: limits{"memory": "5GiB"}}, holdfast.KindDenied},
		"kind of a rule":   {holdfast.WorkspaceSettings{Permissions: rules{"grant": {"Read"}}}, holdfast.KindInvalid},
		"rule":             {holdfast.WorkspaceSettings{Permissions: rules{"deny": {"bad"}}}, holdfast.KindInvalid},
		"text of a rule":   {holdfast.WorkspaceSettings{Permissions: rules{"deny": {"a\x00"}}}, holdfast.KindInvalid},
		"number of rules":  {holdfast.WorkspaceSettings{Permissions: rules{"deny": many}}, holdfast.KindTooLarge},
		"length of a rule": {holdfast.WorkspaceSettings{Permissions: rules{"deny": {strings.Repeat("a", 66_000)}}}, holdfast.KindTooLarge},
	} {
		before := h.get(t, "a")
		if _, err := h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: c.set}); !holdfast.IsKind(err, c.kind) {
			t.Errorf("%s: %v, want %s", name, err, c.kind)
		}
		if now := h.get(t, "a"); !reflect.DeepEqual(now, before) {
			t.Errorf("%s: the workspace is %+v, was %+v", name, now, before)
		}
	}
}

// ruleStore has rules that answers and hooks added.
type ruleStore map[string][]journal.Rule

func (r ruleStore) Rules(_ context.Context, key string) ([]journal.Rule, error) { return r[key], nil }

func (r ruleStore) Changes() int64 { return 0 }

// TestWSR27_RulesOfTheSettings: the rules of a workspace's settings are among those of its key, with a scope of their own,
// so that no session can remove them. An update changes them at once.
func TestWSR27_RulesOfTheSettings(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{Permissions: map[string][]string{"deny": {"Write"}, "allow": {"Read"}}})
	answered := journal.Rule{Scope: holdfast.ScopeWorkspace, Key: "w-site", Behavior: "grant", Rule: "Bash(ls)"}
	stored := workspaces.Ruled{Stored: ruleStore{"w-site": {answered}, "w-other": {answered}, "session": {answered}}, Of: h.Workspaces}
	said := func(key string) (out []string) {
		t.Helper()
		list, err := stored.Rules(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if (r.Behavior != "grant") == (r.Scope == holdfast.ScopeWorkspace || r.Scope == holdfast.ScopeSession) {
				t.Errorf("%s: %+v", key, r)
			}
			out = append(out, r.Behavior+" "+r.Rule)
		}
		return out
	}
	for key, want := range map[string][]string{"w-site": {"allow Read", "deny Write", "grant Bash(ls)"}, "w-other": {"grant Bash(ls)"}, "session": {"grant Bash(ls)"}} {
		if got := said(key); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	before := stored.Changes()
	h.edit(t, "site", "  - Write\n", "  - Edit\n")
	h.get(t, "site")
	if got := stored.Changes(); got <= before {
		t.Errorf("%d changes of rules after a change of the settings, %d before", got, before)
	}
	if got := said("w-site"); !slices.Contains(got, "deny Edit") || slices.Contains(got, "deny Write") {
		t.Errorf("after a change: %q", got)
	}
}

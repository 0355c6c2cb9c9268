package permit_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pending"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/policy"
)

// sources has the layers in memory. It counts what it is asked for.
type sources struct {
	layer policy.Config
	space space
	rules []journal.Rule
	asked map[string]int
	// changes is what Changes returns.
	changes int64
	fails   error
}

func (s *sources) Layer(context.Context, holdfast.VersionID) (policy.Config, error) {
	s.asked["layer"]++
	return s.layer, s.fails
}

func (s *sources) Workspace(context.Context, journal.Row) (permit.Workspace, error) {
	return &s.space, s.fails
}

func (s *sources) Changes() int64 { return s.changes }

func (s *sources) Rules(_ context.Context, key string) ([]journal.Rule, error) {
	s.asked["rules of "+key]++
	return s.rules, s.fails
}

// space is a workspace. Look makes next its layer, unless its context has ended.
type space struct {
	layer, next policy.Config
	lent        bool
	held        []string
	fault       error
}

func (s *space) Look(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	changed := s.layer.Refuse != s.next.Refuse || len(s.layer.Rules.Deny) != len(s.next.Rules.Deny)
	s.layer = s.next
	return changed, nil
}

func (s *space) Layer() policy.Config { return s.layer }

func (s *space) IsLent() bool { return s.lent }

func (s *space) HostGit() ([]string, error) { return s.held, s.fault }

func rules(t *testing.T, allow, deny []string) policy.RuleSet {
	t.Helper()
	r, err := policy.ParseRules(allow, nil, deny)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func policies(t *testing.T, from *sources) *permit.Policies {
	t.Helper()
	server, err := policy.New(policy.Config{Rules: rules(t, nil, []string{"Bash(rm *)"})})
	if err != nil {
		t.Fatal(err)
	}
	from.asked = map[string]int{}
	return permit.New(server, from)
}

var row = journal.Row{Session: holdfast.Session{ID: "one", Mode: holdfast.ModeDefault, Trust: holdfast.Untrusted}}

// decides returns the verdict on a command, who decided it, and the fault of the workspace.
func decides(t *testing.T, l *permit.Layers, command string) (v policy.Verdict, by, fault string) {
	t.Helper()
	p, fault, err := l.Policy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now := l.Current(); now != p {
		t.Errorf("the current policy is %p, the last decision's is %p", now, p)
	}
	in, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Decide(t.Context(), policy.Request{Session: "one", Mode: holdfast.ModeDefault, Tool: "Bash", Input: in})
	if err != nil {
		t.Fatal(err)
	}
	return d.Verdict, d.By, fault
}

// TestLayersAddUp: the server's rules, the agent version's, the session's own and its
// workspace's count together, and the strictest wins.
func TestLayersAddUp(t *testing.T) {
	from := &sources{
		layer: policy.Config{Rules: rules(t, []string{"Bash(make *)", "Bash(rm *)", "Bash(git *)"}, nil)},
		space: space{next: policy.Config{Rules: rules(t, nil, []string{"Bash(git push *)"}), Tighten: true}},
		rules: []journal.Rule{{Scope: holdfast.ScopeSession, Key: "one", Behavior: "grant", Rule: "Bash(go test *)"}},
	}
	l := policies(t, from).Layers(permit.Session{Row: row})
	for command, want := range map[string]policy.Verdict{
		"make all": policy.Allowed, "go test ./x": policy.Allowed, "git push origin": policy.Denied, "rm -r x": policy.Denied, "curl x": policy.Denied,
	} {
		if got, by, _ := decides(t, l, command); got != want {
			t.Errorf("%s is %v by %s, want %v", command, got, by, want)
		}
	}
	if from.asked["layer"] != 1 || from.asked["rules of one"] != 1 {
		t.Errorf("asked for %v: nothing was recorded meanwhile", from.asked)
	}
}

// TestGitOfTheHost: only rules of the server, the agent's version and the workspace's settings let a session write .git of a
// user's own directory; a rule that an answer granted does not.
func TestGitOfTheHost(t *testing.T) {
	const rule = "Edit(.git/**)"
	in := row
	in.Workspace = "site"
	for _, c := range []struct {
		lent    bool
		version []string
		stored  holdfast.ApprovalScope
		want    bool
	}{
		{lent: true},
		{lent: true, stored: holdfast.ScopeSession},
		{lent: true, stored: holdfast.ScopeWorkspace},
		{lent: true, stored: journal.SettingsScope, want: true},
		{lent: true, version: []string{rule}, want: true},
		{want: true},
	} {
		from := &sources{layer: policy.Config{Rules: rules(t, c.version, nil)}, space: space{lent: c.lent}}
		if c.stored != "" {
			from.rules = []journal.Rule{{Scope: c.stored, Key: "w-site", Behavior: "allow", Rule: rule}}
		}
		p, _, err := policies(t, from).Layers(permit.Session{Row: in}).Policy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		walls := p.Walls(policy.Home, policy.Cwd).ReadOnly
		if got := !slices.Contains(walls, "/workspace/.git/"); got != c.want || !slices.Contains(walls, "/workspace/.git/config") {
			t.Errorf("%+v: walls %v", c, walls)
		}
	}
}

// TestGitObeysMore: what the git of the host obeys besides .git is denied with it, to file tools as well. If it is not known, every
// call is denied, unless .git may be written.
func TestGitObeysMore(t *testing.T) {
	in := row
	in.Workspace = "site"
	for _, c := range []struct {
		space   space
		version []string
		trust   holdfast.Trust
		path    string
		want    policy.Verdict
	}{
		{space: space{lent: true, held: []string{"."}, fault: errors.New("damaged")}, trust: holdfast.Trusted, path: `/workspace/x`, want: policy.Allowed},
		{space: space{lent: true, held: []string{"HEAD", `a/*[\.git`}}, path: `/workspace/a/*[\.git`, want: policy.Denied},
		{space: space{lent: true, held: []string{"HEAD", `a/*[\.git`}}, path: `/workspace/a/*[\.git/config`, want: policy.Denied},
		{space: space{lent: true, held: []string{"HEAD", `a/*[\.git`}}, path: `/workspace/HEAD`, want: policy.Denied},
		{space: space{lent: true, held: []string{"HEAD", `a/*[\.git`}}, path: `/workspace/a/HEAD`, want: policy.Allowed},
		{space: space{lent: true, held: []string{"."}}, path: `/workspace/x`, want: policy.Denied},
		{space: space{lent: true, fault: errors.New("damaged")}, path: `/workspace/x`, want: policy.Denied},
		{space: space{lent: true, held: []string{"."}, fault: errors.New("damaged")}, version: []string{"Edit(.git/**)"}, path: `/workspace/x`, want: policy.Allowed},
	} {
		in.Trust = cmp.Or(c.trust, holdfast.Untrusted)
		from := &sources{layer: policy.Config{Rules: rules(t, c.version, nil)}, space: c.space}
		p, _, err := policies(t, from).Layers(permit.Session{Row: in}).Policy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		input, err := json.Marshal(map[string]string{"file_path": c.path, "content": "x"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := p.Decide(t.Context(), policy.Request{Session: "one", Mode: holdfast.ModeBypassPermissions, Tool: "Write", Input: input})
		if err != nil || d.Verdict != c.want {
			t.Errorf("%+v: %v, %v", c, d, err)
		}
		walls := p.Walls(policy.Home, policy.Cwd)
		if len(walls.WritePatterns) > 0 {
			t.Errorf("%+v: patterns %q", c, walls.WritePatterns)
		}
		for _, held := range c.space.held {
			if got := slices.Contains(walls.ReadOnly, path.Join("/workspace", held)+"/"); got != (c.version == nil && c.trust == "") {
				t.Errorf("%+v: walls %q", c, walls.ReadOnly)
			}
		}
	}
}

// TestWhatIsNewCounts: after Recorded, rules and workspace are read again; the rules also when the number of changes
// of the sources is another one. The turn's own updates count at once, before they are recorded.
func TestWhatIsNewCounts(t *testing.T) {
	from := &sources{}
	p := policies(t, from)
	updates := p.Updates(row, "turn")
	l := p.Layers(permit.Session{Row: row, Updates: updates})
	check := func(what string, want policy.Verdict) {
		t.Helper()
		if got, by, _ := decides(t, l, "make all"); got != want {
			t.Errorf("%s: %v by %s, want %v", what, got, by, want)
		}
	}
	grant := journal.Rule{Scope: holdfast.ScopeSession, Key: "one", Behavior: "grant", Rule: "Bash(make *)"}
	check("without a rule", policy.Denied)
	from.rules = []journal.Rule{grant}
	check("nobody said that there is a rule", policy.Denied)
	from.changes++
	check("somebody changed the rules", policy.Allowed)
	from.space.next = policy.Config{Rules: rules(t, nil, []string{"Bash(make *)"}), Tighten: true}
	check("nothing was recorded", policy.Allowed)
	l.Recorded()
	check("the workspace was written to", policy.Denied)
	from.space.next, from.rules = policy.Config{}, nil
	l.Recorded()
	check("no rules", policy.Denied)
	add := policy.Update{Type: policy.AddRules, Behavior: "allow", Rules: []string{"Bash(make *)"}, Destination: policy.ToSession}
	if _, err := updates.Take(t.Context(), permit.UpdatesOf(permit.ByPolicy, []policy.Update{add})); err != nil {
		t.Fatal(err)
	}
	check("an update of the turn", policy.Allowed)
	updates.Drop(new(pending.Facts))
	check("the update is dropped", policy.Denied)
}

// TestWhatCannotBeReadAllowsNothing: if the settings in a workspace cannot be read, the reason is
// returned once, and every call is denied until they can be read. So it is with a stored rule that
// cannot be read.
func TestWhatCannotBeReadAllowsNothing(t *testing.T) {
	from := &sources{layer: policy.Config{Rules: rules(t, []string{"Bash(make *)"}, nil)}, space: space{next: policy.Config{Refuse: "BROKEN"}}}
	l := policies(t, from).Layers(permit.Session{Row: row})
	for i, want := range []string{"BROKEN", "", ""} {
		l.Recorded()
		if v, _, fault := decides(t, l, "make all"); v != policy.Denied || fault != want {
			t.Errorf("look %d: %v, fault %q", i, v, fault)
		}
	}
	from.space.next = policy.Config{}
	l.Recorded()
	if v, by, fault := decides(t, l, "make all"); v != policy.Allowed || fault != "" {
		t.Errorf("mended: %v by %s, fault %q", v, by, fault)
	}
	from.rules = []journal.Rule{{Scope: holdfast.ScopeSession, Key: "one", Behavior: "deny", Rule: "Bash("}}
	l.Recorded()
	if v, by, _ := decides(t, l, "make all"); v != policy.Denied {
		t.Errorf("with an unreadable rule: %v by %s", v, by)
	}
	from.fails = holdfast.Errorf(holdfast.KindUnavailable, "test", "no store")
	l.Recorded()
	for range 2 {
		if _, _, err := l.Policy(t.Context()); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("without a store: %v", err)
		}
	}
}

// TestAnEndedContextIsNoLook: if the context ends before the workspace is read, there is no policy,
// and the next call reads it.
func TestAnEndedContextIsNoLook(t *testing.T) {
	from := &sources{
		layer: policy.Config{Rules: rules(t, []string{"Bash(make *)"}, nil)},
		space: space{next: policy.Config{Rules: rules(t, nil, []string{"Bash(make *)"}), Tighten: true}},
	}
	l := policies(t, from).Layers(permit.Session{Row: row})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if p, _, err := l.Policy(ended); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v, %v", p, err)
	}
	if v, by, _ := decides(t, l, "make all"); v != policy.Denied {
		t.Errorf("the workspace was not read: %v by %s", v, by)
	}
}

// TestVersionsAreBounded: the policies of agent versions are made once each, and the number that is
// kept has a bound.
func TestVersionsAreBounded(t *testing.T) {
	from := &sources{}
	p := policies(t, from)
	for i := range 200 {
		for range 2 {
			if _, err := p.Version(t.Context(), holdfast.VersionID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if from.asked["layer"] != 200 || p.Kept() > 64 {
		t.Errorf("asked %d times for 200 versions, %d are kept", from.asked["layer"], p.Kept())
	}
}

// TestRoom: a session and a workspace have a bound of rules each.
func TestRoom(t *testing.T) {
	from := &sources{rules: make([]journal.Rule, permit.MaxRules-1)}
	for i := range from.rules {
		from.rules[i].Scope = holdfast.ScopeSession
	}
	p := policies(t, from)
	if _, err := p.Room(t.Context(), row, holdfast.ScopeSession, 1); err != nil {
		t.Error(err)
	}
	if _, err := p.Room(t.Context(), row, holdfast.ScopeSession, 2); !holdfast.IsKind(err, holdfast.KindTooLarge) || holdfast.HintOf(err) == "" {
		t.Errorf("too many: %v", err)
	}
	if _, err := p.Room(t.Context(), row, holdfast.ScopeWorkspace, permit.MaxRules); err != nil {
		t.Errorf("the other scope: %v", err)
	}
}

// TestLinksWithoutABox: the workspace is read on the host, nothing outside of it is known, and a
// decision asks a bounded number of questions.
func TestLinksWithoutABox(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("secret", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	l := permit.NewLinks(t.Context(), nil, rooted.Tree(dir), func() time.Time { return now })
	if target, err := l.Readlink("/workspace/l"); target != "secret" || err != nil {
		t.Errorf("a link: %q, %v", target, err)
	}
	if list, err := l.ReadDir("/workspace"); err != nil || len(list) != 1 || !list[0].Link || list[0].Name != "l" {
		t.Errorf("the workspace: %+v, %v", list, err)
	}
	for _, name := range []string{"/etc/passwd", "/proc/self/exe", "/workspace/../etc", "/home/agent/x"} {
		if target, err := l.Readlink(name); err == nil {
			t.Errorf("%s leads to %q", name, target)
		}
	}
	refused := 0
	for i := range 3000 {
		if _, err := l.Readlink(fmt.Sprint("/workspace/", i)); err != nil && !os.IsNotExist(err) {
			refused++
		}
	}
	if refused < 900 {
		t.Errorf("3000 questions, %d refused", refused)
	}
	now = now.Add(time.Minute) // a person has answered meanwhile
	if target, err := l.Readlink("/workspace/l"); target != "secret" || err != nil {
		t.Errorf("after a wait: %q, %v", target, err)
	}
}

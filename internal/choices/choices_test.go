package choices_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/secrets"
)

// named is a runtime that runs no turn.
type named struct{ name string }

func (n named) Name() string { return n.name }

func (named) Run(context.Context, runtime.Turn, runtime.Host) (runtime.Result, error) {
	return runtime.Result{}, holdfast.Errorf(holdfast.KindInternal, "test", "no turn runs here")
}

// boxed is a runtime that works in a sandbox only.
type boxed struct{ named }

func (b boxed) Require(trust holdfast.Trust) error {
	if trust != holdfast.Trusted {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "test", "%s works in a box only", b.name).WithHint("use --trust untrusted")
}

// made returns Choices whose agent, "coder", has a mode, a model and a runtime of its own.
func made(t testing.TB, change func(*choices.Config)) *choices.Choices {
	t.Helper()
	ring, err := seal.OpenKeyring(filepath.Join(t.TempDir(), "keys"), nil, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	net, err := network.New(network.Config{Allow: []string{"*.example"}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := choices.Config{
		Defaults: choices.Defaults{
			Workspace: func(context.Context, string, string, string) (*holdfast.Workspace, error) { return nil, nil },
			Trust:     holdfast.Untrusted, Runtime: "native",
			Model: func(context.Context) (string, error) { return "p/default", nil },
			CheckModel: func(name string) error {
				if strings.HasPrefix(name, "p/") {
					return nil
				}
				return holdfast.Errorf(holdfast.KindInvalid, "model", "no such model")
			},
			Budget: holdfast.Budget{Turns: 7},
		},
		Agent: func(_ context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
			switch name {
			case holdfast.DefaultAgent:
				return holdfast.Agent{Name: name, VersionID: "v1"}, nil
			case "coder":
				return holdfast.Agent{Name: name, VersionID: "v2", Mode: holdfast.ModePlan, Model: "p/coder", Runtime: "boxed"}, nil
			}
			return holdfast.Agent{}, holdfast.Errorf(holdfast.KindNotFound, "agent", "no agent %s", name)
		},
		Runtimes: runtime.NewSet([]runtime.Runtime{named{"native"}, boxed{named{"boxed"}}}),
		Network:  net, Sealer: secrets.New(nil, ring, time.Now),
		NewID: func() (string, error) { return holdfast.NewUUID(time.Now(), rand.Reader) },
		Clock: time.Now,
	}
	if change != nil {
		change(&cfg)
	}
	return choices.New(cfg)
}

func begun(t testing.TB, c *choices.Choices, req holdfast.CreateSession) journal.Row {
	t.Helper()
	row, _, err := c.New(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// TestTrustIsNeverAboveTheCallersMaximum: whatever is asked for, inherited or left out, nobody gets
// a session, an update or a turn with more trust than they may have.
//
// WS-R11, WS-R16.
func TestTrustIsNeverAboveTheCallersMaximum(t *testing.T) {
	levels := rapid.SampledFrom([]holdfast.Trust{holdfast.Trusted, holdfast.Untrusted})
	words := rapid.SampledFrom([]string{"", "trusted", "full", "untrusted", "vault", "sandboxed"})
	rapid.Check(t, func(rt *rapid.T) {
		standard := levels.Draw(rt, "default")
		most := rapid.SampledFrom([]holdfast.Trust{"", holdfast.Trusted, holdfast.Untrusted}).Draw(rt, "maximum")
		c := made(t, func(cfg *choices.Config) { cfg.Defaults.Trust = standard })
		asked := words.Draw(rt, "asked")
		row, notice, err := c.New(t.Context(), holdfast.CreateSession{Trust: asked, MaxTrust: most})
		want := standard
		if asked != "" {
			want, _ = holdfast.Parse[holdfast.Trust](asked)
		}
		above := want == holdfast.Trusted && most == holdfast.Untrusted
		switch {
		case above && asked != "":
			if !holdfast.IsKind(err, holdfast.KindDenied) {
				rt.Fatalf("more than the maximum: %v", err)
			}
		case err != nil:
			rt.Fatal(err)
		case above && row.Trust != most || !above && row.Trust != want:
			rt.Fatalf("trust %s, wanted %s, at most %s", row.Trust, want, most)
		case above != (notice != nil):
			rt.Fatalf("the notice of lowered trust is %v, lowered: %t", notice, above)
		}

		row = journal.Row{Session: holdfast.Session{Trust: levels.Draw(rt, "trust before"), Runtime: "native"}}
		to := words.Draw(rt, "update to")
		req := holdfast.UpdateSession{Trust: &to, MaxTrust: most}
		if to == "" {
			mode := string(holdfast.ModePlan)
			req.Trust, req.Mode = nil, &mode
		}
		if p, _, err := c.Update(row, req); err == nil {
			after := row.Trust
			if p.Trust != nil {
				after = *p.Trust
			}
			if want, _ := holdfast.Parse[holdfast.Trust](to); to != "" && after != want || after.Exceeds(most) {
				rt.Fatalf("updated from %s to %q: %s, at most %q", row.Trust, to, after, most)
			}
		}
		err = choices.TurnTrust(row, holdfast.SendMessage{Trust: to, MaxTrust: most})
		if same, _ := holdfast.Parse[holdfast.Trust](to); err == nil && (row.Trust.Exceeds(most) || to != "" && same != row.Trust) {
			rt.Fatalf("a turn of a %s session with %q and at most %q", row.Trust, to, most)
		}
	})
}

// TestUnknownValuesAreRefused: nothing that is not understood is replaced by something else.
func TestUnknownValuesAreRefused(t *testing.T) {
	type create = holdfast.CreateSession
	long := strings.Repeat("x", 10_000)
	for name, req := range map[string]create{
		"id": {ID: "no id"}, "agent": {Agent: "No Agent!"}, "trust": {Trust: "complete"}, "mode": {Mode: "yolo"},
		"runtime": {Runtime: "none"}, "model": {Model: "q/none"}, "budget": {Budget: &holdfast.Budget{Turns: -1}},
		"turn budget": {TurnBudget: &holdfast.Budget{USD: -1}}, "network": {Network: []string{"10.0.0.1"}},
		"title": {Title: long}, "tag": {Tags: []string{""}}, "source": {Source: long},
		"a NUL in the title": {Title: "a\x00b"}, "a runtime that needs a box": {Runtime: "boxed", Trust: "trusted"},
		"name of a variable": {Env: map[string]string{"1A": "x"}}, "value of a variable": {Env: map[string]string{"A": "x\x00"}},
	} {
		if _, _, err := made(t, nil).New(t.Context(), req); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("new, %s: %v", name, err)
		}
	}
	row := begun(t, made(t, nil), create{})
	bad := "none of these"
	for name, req := range map[string]holdfast.UpdateSession{
		"trust": {Trust: &bad}, "mode": {Mode: &bad}, "runtime": {Runtime: &bad}, "model": {Model: &bad},
		"budget": {Budget: &holdfast.Budget{Turns: -1}}, "turn budget": {TurnBudget: &holdfast.Budget{Seconds: -1}},
		"network": {AllowNet: []string{"10.0.0.1"}}, "title": {Title: &long}, "tag": {AddTags: []string{""}},
	} {
		if _, _, err := made(t, nil).Update(row, req); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("update, %s: %v", name, err)
		}
	}
	if _, _, err := made(t, nil).New(t.Context(), create{Agent: "unknown"}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("an agent that is not deployed: %v", err)
	}
	reserved := create{Env: map[string]string{"HOLDFAST_A": "x"}}
	if _, _, err := made(t, nil).New(t.Context(), reserved); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a reserved variable: %v", err)
	}
}

// TestOrderOfChoices: the request comes before the agent, and the agent before the server.
func TestOrderOfChoices(t *testing.T) {
	type chosen struct {
		Agent          holdfast.AgentName
		Mode           holdfast.Mode
		Runtime, Model string
		Budget         *holdfast.Budget
		Version        holdfast.VersionID
	}
	seven, one := &holdfast.Budget{Turns: 7}, &holdfast.Budget{Turns: 1}
	for name, of := range map[string]struct {
		req  holdfast.CreateSession
		want chosen
	}{
		"server": {holdfast.CreateSession{}, chosen{"default", holdfast.ModeBypassPermissions, "native", "p/default", seven, "v1"}},
		"agent":  {holdfast.CreateSession{Agent: "coder"}, chosen{"coder", holdfast.ModePlan, "boxed", "p/coder", seven, "v2"}},
		"request": {
			holdfast.CreateSession{Agent: "coder", Mode: "dontAsk", Runtime: "native", Model: "p/mine", Budget: one},
			chosen{"coder", holdfast.ModeDontAsk, "native", "p/mine", one, "v2"},
		},
		"a budget of nothing bounds nothing": {
			holdfast.CreateSession{Budget: &holdfast.Budget{}},
			chosen{holdfast.DefaultAgent, holdfast.ModeBypassPermissions, "native", "p/default", nil, "v1"},
		},
	} {
		row := begun(t, made(t, nil), of.req)
		got := chosen{row.Agent, row.Mode, row.Runtime, row.Model, row.Budget, row.AgentVersion}
		if diff := gocmp.Diff(of.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestEnvironmentIsSealed: no value of the environment is in the row that is stored or shown, and
// only the session that it was sealed for can read it.
func TestEnvironmentIsSealed(t *testing.T) {
	c := made(t, nil)
	const secret = "correct horse battery"
	row := begun(t, c, holdfast.CreateSession{Env: map[string]string{"B": secret, "A": "battery"}})
	shown, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(shown, []byte("horse")) || bytes.Contains(row.Given.SealedEnv, []byte("horse")) {
		t.Errorf("the value is readable: %s", shown)
	}
	if diff := gocmp.Diff(map[string]string{"A": "***", "B": "***"}, row.Env); diff != "" {
		t.Error(diff)
	}
	env, err := c.Env(row)
	if diff := gocmp.Diff([]string{"A=battery", "B=" + secret}, env); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	other := begun(t, c, holdfast.CreateSession{})
	if env, err := c.Env(other); err != nil || env != nil {
		t.Errorf("a session without an environment: %q, %v", env, err)
	}
	other.Given.SealedEnv = row.Given.SealedEnv
	if env, err := c.Env(other); err == nil {
		t.Errorf("another session reads %q", env)
	}
}

// TestUpdateOfNothing: what asks for nothing, or for what is so already, changes nothing.
func TestUpdateOfNothing(t *testing.T) {
	c := made(t, nil)
	row := begun(t, c, holdfast.CreateSession{Title: "t", Tags: []string{"a"}, Network: []string{"a.example"}})
	mode, trust := string(row.Mode), string(row.Trust)
	for name, req := range map[string]holdfast.UpdateSession{
		"nothing": {},
		"the same": {
			Title: &row.Title, Tags: &row.Tags, AddTags: []string{"a"}, RemoveTags: []string{"b"}, Mode: &mode, Model: &row.Model,
			Trust: &trust, Runtime: &row.Runtime, Budget: row.Budget, TurnBudget: row.TurnBudget,
			Network: &row.Network, AllowNet: []string{"a.example"}, DenyNet: []string{"b.example"},
		},
	} {
		p, ev, err := c.Update(row, req)
		if err != nil || len(choices.Changed(ev)) > 0 {
			t.Errorf("%s: %v, %v", name, choices.Changed(ev), err)
		}
		if diff := gocmp.Diff(journal.RowPatch{}, p) + gocmp.Diff(holdfast.SessionUpdated{}, ev); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestUpdateSaysWhatItChanges: the patch and the event hold the new value, and the event the former.
func TestUpdateSaysWhatItChanges(t *testing.T) {
	c := made(t, nil)
	row := begun(t, c, holdfast.CreateSession{Title: "before", Tags: []string{"a", "b"}})
	row.Revision = 3
	title := "after"
	req := holdfast.UpdateSession{Revision: 3, Title: &title, AddTags: []string{"c"}, RemoveTags: []string{"a"}}
	p, ev, err := c.Update(row, req)
	if err != nil {
		t.Fatal(err)
	}
	tags, before := []string{"b", "c"}, []string{"a", "b"}
	if diff := gocmp.Diff(journal.RowPatch{Title: &title, Tags: &tags}, p); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff([]string{"title", "tags"}, choices.Changed(ev)); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff([]any{&row.Title, &before}, []any{ev.From.Title, ev.From.Tags}); diff != "" {
		t.Error(diff)
	}
	req.Revision = 2
	if _, _, err := c.Update(row, req); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("an update for another revision: %v", err)
	}
}

// TestFilesOfRootStayOnTheHost: a session without a workspace that worked as root does not move into a box.
func TestFilesOfRootStayOnTheHost(t *testing.T) {
	row := journal.Row{Session: holdfast.Session{Trust: holdfast.Trusted, Runtime: "native"}, HadFiles: true}
	to := string(holdfast.Untrusted)
	for _, root := range []bool{true, false} {
		c := made(t, func(cfg *choices.Config) { cfg.Root = root })
		if _, _, err := c.Update(row, holdfast.UpdateSession{Trust: &to}); holdfast.IsKind(err, holdfast.KindConflict) != root {
			t.Errorf("as root %t: %v", root, err)
		}
	}
}

// TestWSR16_OrderOfTrust: the trust of a session is that of the request, else the stored one, else that of
// the workspace,
// else that of the server, in every combination.
//
// WS-R10, WS-R15.
func TestWSR16_OrderOfTrust(t *testing.T) {
	levels := []holdfast.Trust{"", holdfast.Trusted, holdfast.Untrusted}
	for _, request := range levels {
		for _, stored := range levels {
			for _, workspace := range levels {
				for _, server := range levels[1:] {
					c := made(t, func(cfg *choices.Config) {
						cfg.Defaults.Trust = server
						cfg.Defaults.Workspace = func(context.Context, string, string, string) (*holdfast.Workspace, error) {
							return &holdfast.Workspace{ID: "site", DefaultTrust: workspace}, nil
						}
					})
					var got holdfast.Trust
					if stored == "" {
						got = begun(t, c, holdfast.CreateSession{Trust: string(request)}).Trust
					} else {
						row := journal.Row{Session: holdfast.Session{Workspace: "site", Trust: stored, Runtime: "native"}}
						if err := choices.TurnTrust(row, holdfast.SendMessage{}); err != nil {
							t.Error(err)
						}
						if got = stored; request != "" {
							asked := string(request)
							p, _, err := c.Update(row, holdfast.UpdateSession{Trust: &asked})
							if err != nil {
								t.Fatal(err)
							}
							if p.Trust != nil {
								got = *p.Trust
							}
						}
					}
					if want := cmp.Or(request, stored, workspace, server); got != want {
						t.Errorf("request %q, stored %q, workspace %q, server %q: %q, want %q", request, stored, workspace, server, got, want)
					}
				}
			}
		}
	}
}

// TestWSR17_TrustMovesInAWorkspace: a session in a workspace gets the trust that it asks for, and moves from one level
// to the other, also on a server that runs as root: the files belong to the same user at both (WS-R15, WS-R17).
func TestWSR17_TrustMovesInAWorkspace(t *testing.T) {
	for _, root := range []bool{true, false} {
		for _, workspace := range []holdfast.Trust{"", holdfast.Trusted, holdfast.Untrusted} {
			c := made(t, func(cfg *choices.Config) {
				cfg.Root = root
				cfg.Defaults.Workspace = func(context.Context, string, string, string) (*holdfast.Workspace, error) {
					return &holdfast.Workspace{ID: "site", DefaultTrust: workspace}, nil
				}
			})
			for asked, other := range map[string]string{"trusted": "untrusted", "untrusted": "trusted"} {
				row, _, err := c.New(t.Context(), holdfast.CreateSession{Trust: asked})
				if err != nil || string(row.Trust) != asked {
					t.Errorf("root %t, workspace %q, asked %s: %+v, %v", root, workspace, asked, row.Session, err)
				}
				row.HadFiles = true
				if p, _, err := c.Update(row, holdfast.UpdateSession{Trust: &other}); err != nil || string(*p.Trust) != other {
					t.Errorf("root %t, workspace %q, from %s to %s: %+v, %v", root, workspace, asked, other, p, err)
				}
			}
		}
	}
}

// TestWSR27_SettingsOfAWorkspace: a new session takes model, runtime and network from its workspace, unless the request
// names them; they come before the agent's and the server's.
func TestWSR27_SettingsOfAWorkspace(t *testing.T) {
	c := made(t, func(cfg *choices.Config) {
		cfg.Defaults.Workspace = func(context.Context, string, string, string) (*holdfast.Workspace, error) {
			return &holdfast.Workspace{ID: "site", Model: "p/site", Runtime: "native", Network: []string{"site.example"}}, nil
		}
	})
	row := begun(t, c, holdfast.CreateSession{Agent: "coder"})
	if row.Workspace != "site" || row.Model != "p/site" || row.Runtime != "native" || len(row.Network) != 1 || row.Network[0] != "site.example" {
		t.Errorf("from the workspace: %+v", row.Session)
	}
	row = begun(t, c, holdfast.CreateSession{Agent: "coder", Model: "p/mine", Runtime: "boxed", Network: []string{}})
	if row.Model != "p/mine" || row.Runtime != "boxed" || row.Network == nil || len(row.Network) != 0 {
		t.Errorf("from the request: %+v", row.Session)
	}
}

// TestWSR27_EnvironmentFromTheWorkspace: a new session has the environment of its workspace, and its own values where it
// names one. The row has the names only.
func TestWSR27_EnvironmentFromTheWorkspace(t *testing.T) {
	for _, broken := range []bool{false, true} {
		c := made(t, func(cfg *choices.Config) {
			cfg.Defaults.Workspace = func(context.Context, string, string, string) (*holdfast.Workspace, error) {
				return &holdfast.Workspace{ID: "site", Env: map[string]string{"A": "***", "B": "***"}}, nil
			}
			cfg.Defaults.Environment = func(_ context.Context, id holdfast.Slug) (map[string]string, error) {
				if broken {
					return nil, holdfast.Errorf(holdfast.KindInternal, "test", "cannot be opened")
				}
				return map[string]string{"A": "site's " + string(id), "B": "site's"}, nil
			}
		})
		if broken {
			if _, _, err := c.New(t.Context(), holdfast.CreateSession{}); !holdfast.IsKind(err, holdfast.KindInternal) {
				t.Errorf("an environment that does not open: %v", err)
			}
			continue
		}
		row := begun(t, c, holdfast.CreateSession{Env: map[string]string{"B": "mine", "C": ""}})
		env, err := c.Env(row)
		if want := []string{"A=site's site", "B=mine", "C="}; err != nil || !slices.Equal(env, want) {
			t.Errorf("%q, %v; want %q", env, err, want)
		}
		if want := map[string]string{"A": "***", "B": "***", "C": "***"}; !maps.Equal(row.Env, want) {
			t.Errorf("shown: %v", row.Env)
		}
	}
}

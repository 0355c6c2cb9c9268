package network_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

func untrusted(list []string) journal.Row {
	return journal.Row{Session: holdfast.Session{Trust: holdfast.Untrusted, Network: list}}
}

func noAgent() (*check.Settings, error) { return nil, nil }

func noRules() (*policy.Engine, error) { return policy.New(policy.Config{}) }

func made(t interface {
	Helper()
	Fatal(...any)
}, cfg network.Config,
) *network.Network {
	t.Helper()
	n, err := network.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// names reports whether a list of destinations without ports names a host, by the words of the
// documentation: a name, a name and all below it, or every name.
func names(list []string, host string) bool {
	return slices.ContainsFunc(list, func(d string) bool {
		below, wild := strings.CutPrefix(d, "*.")
		return d == "*" || d == host || wild && strings.HasSuffix(host, "."+below)
	})
}

// TestReachIsTheMeetingOfAllLists: a host can be reached if and only if the first of the session,
// its agent and the server's default that has a list names it, and the server's list does, and
// each layer of sandbox settings that has one.
func TestReachIsTheMeetingOfAllLists(t *testing.T) {
	hosts := []string{"a.example", "x.a.example", "b.example", "x.b.example", "y.x.b.example"}
	domains := []string{"a.example", "*.a.example", "b.example", "*.b.example", "x.b.example", "*.example"}
	list := func(of ...string) *rapid.Generator[[]string] { return rapid.SliceOfN(rapid.SampledFrom(of), 0, 4) }
	plain, any := list(domains...), list(append(domains, "*")...)
	rapid.Check(t, func(t *rapid.T) {
		cfg := network.Config{Allow: any.Draw(t, "allow"), Default: any.Draw(t, "default")}
		n := made(t, cfg)
		asked, row := cfg.Default, untrusted(nil)
		var agent *check.Settings
		if rapid.Bool().Draw(t, "the agent has settings") {
			agent = &check.Settings{}
			if rapid.Bool().Draw(t, "the agent has a list") {
				asked = plain.Draw(t, "agent")
				agent.Network = &check.Network{AllowedDomains: asked}
			}
		}
		if rapid.Bool().Draw(t, "the session has a list") {
			asked = append([]string{}, any.Draw(t, "session")...)
			row.Network = asked
		}
		must := [][]string{asked, cfg.Allow}
		rules, err := noRules()
		for range rapid.IntRange(0, 3).Draw(t, "layers") {
			layer := &check.Settings{}
			if rapid.Bool().Draw(t, "the layer has a list") {
				l := plain.Draw(t, "layer")
				layer.Network, must = &check.Network{AllowedDomains: l}, append(must, l)
			}
			if err == nil {
				rules, err = rules.With(policy.Config{Sandbox: layer})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		reach, err := n.Reach(row,
			func() (*check.Settings, error) { return agent, nil },
			func() (*policy.Engine, error) { return rules, nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hosts {
			want := !slices.ContainsFunc(must, func(l []string) bool { return !names(l, h) })
			if _, of, got := reach.Allows(h, 443); got != want {
				t.Fatalf("%s is reachable: %t, want %t (refused by %q); lists %q", h, got, want, of, must)
			}
			if _, _, got := reach.Allows(h, 8443); got {
				t.Fatalf("%s:8443 is reachable, and no list names a port", h)
			}
		}
	})
}

// TestReachOfNothing: where nothing can be granted, nothing is asked for, and nothing is reachable.
func TestReachOfNothing(t *testing.T) {
	unasked := func() (*check.Settings, error) { return nil, errors.New("the agent was read") }
	unread := func() (*policy.Engine, error) { return nil, errors.New("the rules were read") }
	open := network.Config{Allow: []string{"*"}, Default: []string{"a.example"}}
	trusted := untrusted([]string{"a.example"})
	trusted.Trust = holdfast.Trusted
	for name, of := range map[string]struct {
		cfg   network.Config
		row   journal.Row
		agent func() (*check.Settings, error)
	}{
		"trusted":                      {open, trusted, unasked},
		"a server that allows none":    {network.Config{Default: open.Default}, untrusted([]string{"a.example"}), unasked},
		"a session with an empty list": {open, untrusted([]string{}), noAgent},
		"nobody names any":             {network.Config{Allow: open.Allow}, untrusted(nil), noAgent},
	} {
		reach, err := made(t, of.cfg).Reach(of.row, of.agent, unread)
		if err != nil || !reach.None() {
			t.Errorf("%s: %v, %v", name, reach, err)
		}
	}
}

// TestReachNeedsItsLists: a list that cannot be read grants nothing.
func TestReachNeedsItsLists(t *testing.T) {
	n := made(t, network.Config{Allow: []string{"*"}, Default: []string{"a.example"}})
	broken := errors.New("broken")
	for name, of := range map[string]struct {
		row   journal.Row
		agent func() (*check.Settings, error)
		rules func() (*policy.Engine, error)
	}{
		"agent":   {untrusted(nil), func() (*check.Settings, error) { return nil, broken }, noRules},
		"rules":   {untrusted(nil), noAgent, func() (*policy.Engine, error) { return nil, broken }},
		"session": {untrusted([]string{"10.0.0.1"}), noAgent, noRules},
	} {
		if reach, err := n.Reach(of.row, of.agent, of.rules); err == nil || !reach.None() {
			t.Errorf("%s: %v, %v", name, reach, err)
		}
	}
}

func TestGrantsRefuse(t *testing.T) {
	n := made(t, network.Config{Allow: []string{"*.a.example", "b.example:8443"}})
	for d, want := range map[string]holdfast.Kind{
		"x.a.example": "", "*.x.a.example": "", "*": "", "b.example:8443": "",
		"b.example": holdfast.KindDenied, "c.example": holdfast.KindDenied,
		"a.example": holdfast.KindDenied, "x.a.example:22": holdfast.KindDenied,
		"10.0.0.1": holdfast.KindInvalid, "a b": holdfast.KindInvalid,
	} {
		if err := n.Grants([]string{d}, holdfast.Untrusted); holdfast.KindOf(err) != want && (err != nil || want != "") {
			t.Errorf("%s: %v, want %q", d, err, want)
		}
		if err := n.Grants([]string{d}, holdfast.Trusted); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s for a trusted session: %v", d, err)
		}
	}
	if err := n.Grants(nil, holdfast.Trusted); err != nil {
		t.Errorf("no destination: %v", err)
	}
}

// TestNoSessionIsWiderThanItsWorkspace: a session names destinations of its workspace only, at its creation and later.
func TestNoSessionIsWiderThanItsWorkspace(t *testing.T) {
	n := made(t, network.Config{Allow: []string{"*", "*:8443", "*:22"}, Workspace: func(id holdfast.Slug) []string {
		return map[holdfast.Slug][]string{"site": {"*.a.example", "b.example:8443"}, "closed": {}}[id]
	}})
	for d, narrow := range map[string]bool{
		"x.a.example": true, "*.x.a.example": true, "*.a.example": true, "x.a.example:443": true, "b.example:8443": true,
		"*": false, "a.example": false, "b.example": false, "x.a.example:22": false, "*.example": false,
	} {
		row := untrusted(nil)
		row.Workspace = "site"
		err := n.Plan(row, holdfast.UpdateSession{AllowNet: []string{d}}, &journal.RowPatch{}, &holdfast.SessionUpdated{})
		for what, err := range map[string]error{"created": n.Within("site", []string{d}), "updated": err} {
			if narrow && err != nil || !narrow && (!holdfast.IsKind(err, holdfast.KindConflict) || holdfast.HintOf(err) == "") {
				t.Errorf("%s with %s: %v", what, d, err)
			}
		}
		if err := n.Within("closed", []string{d}); !holdfast.IsKind(err, holdfast.KindConflict) {
			t.Errorf("%s in a workspace without a network: %v", d, err)
		}
		if err := errors.Join(n.Within("other", []string{d}), n.Within("", []string{d})); err != nil {
			t.Errorf("%s without a limit: %v", d, err)
		}
	}
}

// TestPlan: an update changes a session's list only by what the server grants, and says both lists.
func TestPlan(t *testing.T) {
	n := made(t, network.Config{Allow: []string{"*.example"}})
	list := func(d ...string) *[]string {
		d = append([]string{}, d...)
		return &d
	}
	both := []string{"a.example", "b.example"}
	type update = holdfast.UpdateSession
	for name, of := range map[string]struct {
		from []string
		req  update
		want *[]string
		kind holdfast.Kind
	}{
		"nothing is asked": {from: []string{"a.example"}},
		"the same list":    {from: []string{"a.example"}, req: update{Network: list("a.example")}},
		"added once": {
			from: []string{"a.example"}, req: update{AllowNet: []string{"b.example", "a.example"}}, want: list("a.example", "b.example"),
		},
		"taken away":           {from: both, req: update{DenyNet: []string{"a.example"}}, want: list("b.example")},
		"all are taken away":   {from: both, req: update{DenyNet: []string{"*"}}, want: list()},
		"an empty list counts": {req: update{Network: list()}, want: list()},
		"what stays is not granted again": {
			from: []string{"was.granted.org"}, req: update{AllowNet: []string{"a.example"}},
			want: list("was.granted.org", "a.example"),
		},
		"not allowed by the server": {from: []string{"a.example"}, req: update{AllowNet: []string{"c.org"}}, kind: holdfast.KindDenied},
		"a whole list that is not":  {req: update{Network: list("c.org")}, kind: holdfast.KindDenied},
		"no destination":            {req: update{DenyNet: []string{"10.0.0.1"}}, kind: holdfast.KindInvalid},
		"too many":                  {req: update{Network: list(slices.Repeat([]string{"a.example"}, 201)...)}, kind: holdfast.KindInvalid},
	} {
		var p journal.RowPatch
		var ev holdfast.SessionUpdated
		err := n.Plan(untrusted(of.from), of.req, &p, &ev)
		if of.kind != "" && !holdfast.IsKind(err, of.kind) || of.kind == "" && err != nil {
			t.Errorf("%s: %v, want %q", name, err, of.kind)
		}
		if diff := cmp.Diff([]*[]string{of.want, of.want}, []*[]string{p.Network, ev.Network}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if of.want != nil && of.from != nil {
			if diff := cmp.Diff(&of.from, ev.From.Network); diff != "" {
				t.Errorf("%s: from %s", name, diff)
			}
		}
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, cfg := range []network.Config{{Allow: []string{"10.0.0.1"}}, {Default: []string{"a b"}}} {
		if _, err := network.New(cfg); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	made(t, network.Config{}).Changed(t.Context(), "s")
	var told holdfast.SessionID
	changed := func(_ context.Context, id holdfast.SessionID) { told = id }
	made(t, network.Config{Changed: changed}).Changed(t.Context(), "s")
	if told != "s" {
		t.Errorf("Changed was called for %q", told)
	}
}

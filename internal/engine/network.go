package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/check"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// NetworkConfig says what boxes may connect to through the proxy.
type NetworkConfig struct {
	// Allow is what any box may be granted; empty is nothing. Default is what sessions
	// are granted that name nothing, and whose agents name nothing.
	Allow, Default []string
	// Changed is told when what a session may reach has changed.
	Changed func(ctx context.Context, id holdfast.SessionID)
}

// network is NetworkConfig, read.
type network struct {
	allow, standard check.Destinations
	changed         func(ctx context.Context, id holdfast.SessionID)
}

func newNetwork(cfg NetworkConfig) (n network, err error) {
	if n.allow, err = check.ParseDestinations("server (network.allow)", cfg.Allow); err != nil {
		return n, err
	}
	n.standard, err = check.ParseDestinations("server (network.default)", cfg.Default)
	n.changed = cfg.Changed
	return n, err
}

// maxDestinations bounds a session's list.
const maxDestinations = 200

func checkNetwork(list []string) error {
	if len(list) > maxDestinations {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "%d destinations are more than %d", len(list), maxDestinations)
	}
	_, err := check.ParseDestinations("session", list)
	return err
}

// grants refuses destinations of which nothing can be granted: the session has no box,
// the server allows nothing, or nothing that one of them names.
func (n network) grants(list []string, trust holdfast.Trust) error {
	if len(list) == 0 {
		return nil
	}
	const op = "session.network"
	if trust == holdfast.Trusted {
		return holdfast.Errorf(holdfast.KindInvalid, op, "%s is not granted: tools of a trusted session run on the host, with the host's network", holdfast.Quote(list[0])).
			WithHint("leave --allow-net out, or use --trust untrusted")
	}
	for _, s := range list {
		d, err := check.ParseDestination(s)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(n.allow.List, d.Overlaps) {
			return holdfast.Errorf(holdfast.KindDenied, op, "%s is not granted: it is outside everything that this server allows its sessions", holdfast.Quote(s)).
				WithHint("the server's owner allows it: holdfast serve --set network.allow=%s", strings.Join(append(names(n.allow.List), d.String()), ","))
		}
	}
	return nil
}

func names(list []check.Destination) []string {
	out := make([]string, len(list))
	for i, d := range list {
		out[i] = d.String()
	}
	return out
}

// Network is what the box of a session may reach at this moment: what the session
// names, else its agent, else the server by default; and of that only what the server
// allows, and what every layer of sandbox settings with a list names, those in the
// workspace included.
func (e *Engine) Network(ctx context.Context, id holdfast.SessionID) (check.Reach, error) {
	u := e.claim(id)
	defer e.disclaim(u)
	row, err := e.liveRow(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.reach(ctx, u, row)
}

func (e *Engine) reach(ctx context.Context, u *unit, row journal.Row) (check.Reach, error) {
	if len(e.network.allow.List) == 0 || row.Trust == holdfast.Trusted {
		return nil, nil
	}
	s, err := e.cfg.Agents.Settings(ctx, row.AgentVersion)
	if err != nil {
		return nil, err
	}
	asked := e.network.standard
	switch n := s.Sandbox; {
	case row.Network != nil:
		if asked, err = check.ParseDestinations("session", row.Network); err != nil {
			return nil, err
		}
	case n != nil && n.Network != nil:
		asked = check.Domains("agent", n.Network.AllowedDomains)
	}
	if len(asked.List) == 0 {
		return nil, nil
	}
	reach := check.Reach{asked, e.network.allow}
	p, fault, err := e.agents.policies.Layers(permit.Session{Row: row, Changes: u.rules.Load}).Policy(ctx)
	if err != nil {
		return nil, err
	}
	if fault != "" {
		return nil, holdfast.Errorf(holdfast.KindDenied, "network", "%s", fault)
	}
	for _, list := range p.Networks() {
		reach = append(reach, check.Domains("sandbox settings", list))
	}
	return reach, nil
}

// Proxy is where the proxy listens in a box.
const (
	ListenerProxy = "proxy"
	proxyAddress  = "127.0.0.1:3128"
)

// proxyEnv leads programs to the proxy, in both spellings there are.
var proxyEnv = []string{
	"HTTP_PROXY=http://" + proxyAddress, "http_proxy=http://" + proxyAddress,
	"HTTPS_PROXY=http://" + proxyAddress, "https_proxy=http://" + proxyAddress,
	"NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1",
}

// connect gives a session its environment in a box, and a proxy there if it may reach
// anything. Without the proxy port, which something in the box may have taken, the box works
// as one without grants.
func (e *Engine) connect(ctx context.Context, row journal.Row, box *sandbox.Box, env []string) error {
	proxied, err := e.proxied(ctx, row, box)
	if err != nil {
		return err
	}
	if proxied {
		// What the session was given with --env wins.
		env = append(slices.Clone(proxyEnv), env...)
	}
	box.SetEnv(env)
	return nil
}

// proxied reports whether the session has a proxy in the box, and opens it if it may.
func (e *Engine) proxied(ctx context.Context, row journal.Row, box *sandbox.Box) (bool, error) {
	u := e.claim(row.ID)
	defer e.disclaim(u)
	reach, err := e.reach(ctx, u, row)
	if err != nil && !holdfast.IsKind(err, holdfast.KindDenied) {
		return false, err
	}
	if err != nil || reach.None() {
		return false, nil
	}
	if err := box.Listen(ctx, wire.ListenRequest{Name: ListenerProxy, Network: "tcp", Address: proxyAddress}); err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		e.cfg.Log.WarnContext(ctx, "a box has no proxy", "box_id", box.ID(), "session_id", row.ID, "error", err)
		return false, nil
	}
	return true, nil
}

// reconnect follows a change of what a session may reach: its box from the next
// process on, what is open at once.
func (e *Engine) reconnect(ctx context.Context, row journal.Row) error {
	var err error
	if box := e.boxes.Running(row); box != nil {
		var env []string
		if env, err = e.openEnv(row); err == nil {
			err = e.connect(ctx, row, box, env)
		}
	}
	if e.network.changed != nil {
		e.network.changed(ctx, row.ID)
	}
	return err
}

// plan plans the list of a session's destinations.
func (n network) plan(row journal.Row, req holdfast.UpdateSession, p *journal.RowPatch, ev *holdfast.SessionUpdated) error {
	if req.Network == nil && len(req.AllowNet)+len(req.DenyNet) == 0 {
		return nil
	}
	list := slices.Clone(row.Network)
	if req.Network != nil {
		list = slices.Clone(*req.Network)
	}
	list = slices.DeleteFunc(append([]string{}, list...), func(d string) bool {
		return slices.Contains(req.DenyNet, d) || slices.Contains(req.DenyNet, "*")
	})
	for _, d := range req.AllowNet {
		if !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	if err := checkNetwork(slices.Concat(list, req.DenyNet)); err != nil {
		return err
	}
	if row.Network != nil && slices.Equal(list, row.Network) {
		return nil
	}
	added := slices.DeleteFunc(slices.Clone(list), func(d string) bool { return slices.Contains(row.Network, d) })
	if err := n.grants(added, row.Trust); err != nil {
		return err
	}
	p.Network, ev.Network = &list, &list
	if row.Network != nil {
		before := slices.Clone(row.Network)
		ev.From.Network = &before
	}
	return nil
}

// RecordEgress writes what the proxy decided into the log of a session, as part of the
// turn that runs, if one does.
func (e *Engine) RecordEgress(ctx context.Context, id holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) error {
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: typ, Turn: e.turnOf(id), Data: d}}
	_, err := e.cfg.Journal.Commit(ctx, c)
	return err
}

// Package network decides which destinations the boxes of sessions may reach through the proxy:
// those that the server allows, that the session or its agent asks for, and that sandbox settings
// do not exclude.
//
// The engine owns one Network. It imports check and policy. The only thing it opens is the proxy's
// listener in a box. Invariant: a destination is reachable only if every list that applies names it
// (decisions.md, Network).
package network

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/check"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Config configures which destinations boxes may connect to through the proxy.
type Config struct {
	// Allow lists the destinations that boxes may be granted; empty means none. Default lists those
	// that a session gets if neither it nor its agent names any.
	Allow, Default []string
	// Workspace returns the destinations that sessions of a workspace may name; no others are
	// allowed to them. If the function or its result is nil, they may name all that Allow has.
	Workspace func(id holdfast.Slug) []string
	// Changed is called when the destinations that a session may reach have changed; may be nil.
	Changed func(ctx context.Context, id holdfast.SessionID)
	// Key returns the key that requests at a session's ports must carry if other processes can connect to the ports:
	// those of sessions that share the box, or those of the host. It must be set on a server with such ports.
	Key func(id holdfast.SessionID) string
}

// Network is a parsed Config. Safe for concurrent use.
type Network struct {
	// closed holds the sessions whose port to the proxy could not be opened, each with the boot of the box in which that
	// happened.
	closed sync.Map

	allow, standard check.Destinations
	workspace       func(id holdfast.Slug) []string
	changed         func(ctx context.Context, id holdfast.SessionID)
	key             func(id holdfast.SessionID) string
}

// New parses a configuration; it fails with invalid for a text that is not a destination.
func New(cfg Config) (*Network, error) {
	n := &Network{changed: cfg.Changed, workspace: cfg.Workspace, key: cfg.Key}
	var err error
	if n.allow, err = check.ParseDestinations("server (network.allow)", cfg.Allow); err != nil {
		return nil, err
	}
	n.standard, err = check.ParseDestinations("server (network.default)", cfg.Default)
	return n, err
}

// Changed reports a change of a session's destinations to Config.Changed.
func (n *Network) Changed(ctx context.Context, id holdfast.SessionID) {
	if n.changed != nil {
		n.changed(ctx, id)
	}
}

// maxDestinations is the largest number of destinations of a session.
const maxDestinations = 200

// Check returns invalid for a list of destinations that is too long or has an invalid entry.
func Check(list []string) error {
	if len(list) > maxDestinations {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "%d network destinations exceed the limit of %d for a session", len(list), maxDestinations)
	}
	_, err := check.ParseDestinations("session", list)
	return err
}

// Grants refuses destinations that cannot be granted to a session of this trust on this server: with
// invalid for trusted sessions, which reach every destination through the host's network; with denied if
// the server's settings do not allow them.
func (n *Network) Grants(list []string, trust holdfast.Trust) error {
	if len(list) == 0 {
		return nil
	}
	const op = "session.network"
	if trust == holdfast.Trusted {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the destination %s cannot be granted: tools of a trusted session run on the host, with the host's network", holdfast.Quote(list[0])).
			WithHint("leave --allow-net out, or use --trust untrusted")
	}
	for _, s := range list {
		d, err := check.ParseDestination(s)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(n.allow.List, d.Overlaps) {
			return holdfast.Errorf(holdfast.KindDenied, op, "the destination %s cannot be granted: this server's settings do not allow it for any session", holdfast.Quote(s)).
				WithHint("the server's owner allows the destination: holdfast serve --set network.allow=%s", strings.Join(append(names(n.allow.List), d.String()), ","))
		}
	}
	return nil
}

// Within refuses, with conflict, destinations that are not among those of the session's workspace.
func (n *Network) Within(id holdfast.Slug, list []string) error {
	if id == "" || n.workspace == nil {
		return nil
	}
	limit := n.workspace(id)
	if limit == nil {
		return nil
	}
	most, err := check.ParseDestinations("workspace", limit)
	if err != nil {
		return err
	}
	for _, s := range list {
		d, err := check.ParseDestination(s)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(most.List, func(o check.Destination) bool { return o.Includes(d) }) {
			return holdfast.Errorf(holdfast.KindConflict, "session.network", "the destination %s is not among those of workspace %s, and a session may not use others", holdfast.Quote(s), id).
				WithHint("an admin adds the destination to the workspace: holdfast workspace update %s --allow-net %s", id, strings.Join(append(names(most.List), d.String()), " --allow-net "))
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

// Reach returns the destinations that the box of a session may reach; nil means none. They are
// those that the session names, else those of its agent, else the server's default. Of these, only
// the ones remain that the server allows and that every layer of sandbox settings with a list
// names. agent returns the agent's sandbox settings, nil for none, and rules the session's policy
// with all its layers; they are called only if something may be granted.
func (n *Network) Reach(row journal.Row, agent func() (*check.Settings, error), rules func() (*policy.Engine, error)) (check.Reach, error) {
	if len(n.allow.List) == 0 || row.Trust == holdfast.Trusted {
		return nil, nil
	}
	sandboxed, err := agent()
	if err != nil {
		return nil, err
	}
	asked := n.standard
	switch {
	case row.Network != nil:
		if asked, err = check.ParseDestinations("session", row.Network); err != nil {
			return nil, err
		}
	case sandboxed != nil && sandboxed.Network != nil:
		asked = check.Domains("agent", sandboxed.Network.AllowedDomains)
	}
	if len(asked.List) == 0 {
		return nil, nil
	}
	reach := check.Reach{asked, n.allow}
	p, err := rules()
	if err != nil {
		return nil, err
	}
	for _, list := range p.Networks() {
		reach = append(reach, check.Domains("sandbox settings", list))
	}
	return reach, nil
}

// Listener is the name of the proxy's listener of a session whose port no other process can reach. KeyedListener is the
// name if others can, as in a shared box: then each request has to carry the session's key.
const Listener, KeyedListener = "proxy", "proxy-keyed"

// address is where the proxy listens in a box if only the session's processes can connect to it.
const address = "127.0.0.1:3128"

// Key returns the key that requests at a session's ports must carry; empty if the ports are not shared: no other
// process than the session's can connect to them.
func (n *Network) Key(id holdfast.SessionID, shared bool) string {
	if !shared {
		return ""
	}
	return n.key(id)
}

// Open opens a session's port to the proxy in a box, and returns the environment that makes programs use it, in both
// common spellings. If shared is true and there is a key, any free port is used, and the environment contains the key.
// If the port cannot be opened, the first call in a boot of the box returns the error; later calls return no
// environment and no error.
func (n *Network) Open(ctx context.Context, box *sandbox.Box, id holdfast.SessionID, shared bool) ([]string, error) {
	req, user := wire.ListenRequest{Name: Listener, Network: "tcp", Address: address}, ""
	if key := n.Key(id, shared); key != "" {
		req.Name, req.Address, user = KeyedListener, "127.0.0.1:0", "holdfast:"+key+"@"
	}
	at, err := box.Listen(ctx, req)
	if err != nil {
		if ctx.Err() == nil {
			if boot, _ := n.closed.Swap(id, box.Boot()); boot == box.Boot() {
				err = nil
			}
		}
		return nil, err
	}
	n.closed.Delete(id)
	url := "http://" + user + at
	return []string{
		"HTTP_PROXY=" + url, "http_proxy=" + url, "HTTPS_PROXY=" + url, "https_proxy=" + url,
		"NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1",
	}, nil
}

// Plan adds the changes of a session's destinations to an update's patch and event.
func (n *Network) Plan(row journal.Row, req holdfast.UpdateSession, p *journal.RowPatch, ev *holdfast.SessionUpdated) error {
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
	if err := Check(slices.Concat(list, req.DenyNet)); err != nil {
		return err
	}
	if row.Network != nil && slices.Equal(list, row.Network) {
		return nil
	}
	added := slices.DeleteFunc(slices.Clone(list), func(d string) bool { return slices.Contains(row.Network, d) })
	if err := n.Grants(added, row.Trust); err != nil {
		return err
	}
	if err := n.Within(row.Workspace, added); err != nil {
		return err
	}
	p.Network, ev.Network = &list, &list
	if row.Network != nil {
		before := slices.Clone(row.Network)
		ev.From.Network = &before
	}
	return nil
}

package app

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/egress"
	"github.com/holdfast-run/holdfast/internal/models"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/acp"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// waysOut are the ways out of boxes: the broker to models, the proxy to what sessions were granted, and the keys that
// sessions in a shared box present at their ports to the broker and the proxy.
type waysOut struct {
	broker *egress.Broker
	proxy  *egress.Proxy
	keys   egress.Keys
}

// openEgress opens the ways out of boxes.
func (s *server) openEgress(ctx context.Context, choice *models.Models, found []Provider) (err error) {
	if s.out.keys, err = seal.KeyFile(filepath.Join(s.cfg.Data, "ports.key"), rand.Reader); err != nil {
		return err
	}
	if s.out.broker, err = s.newBroker(ctx, choice, found); err != nil {
		return err
	}
	// The server ends the proxy by calling Close when it stops; the end of ctx must not end it.
	s.out.proxy = egress.NewProxy(context.WithoutCancel(ctx), egress.ProxyConfig{
		Sessions: turns{s}, Resolve: s.opt.Resolve, Dial: s.opt.Dial, Now: time.Now, Log: s.opt.Log,
	})
	return nil
}

// newBroker makes the broker for the configured providers. Calls of the scripted model are answered
// inside the server.
func (s *server) newBroker(ctx context.Context, choice *models.Models, found []Provider) (*egress.Broker, error) {
	scripted := double.New(double.Config{Record: func(double.Request) error { return nil }})
	ups := map[string]egress.Upstream{
		egress.Scripted: {URL: "http://scripted.invalid", Transport: egress.InProcess(scripted)},
	}
	for _, p := range found {
		ups[p.Name] = egress.Upstream{URL: p.URL, Transport: remote.NewClient(s.cfg.Models.Silence).Transport, Key: func() (string, error) {
			if !p.ready() {
				return "", choice.Check(p.Name + "/any")
			}
			return p.lookup()
		}}
	}
	var granted []egress.Grant
	for _, name := range s.cfg.Broker.Allow {
		g, err := egress.ParseGrant(name)
		if err != nil {
			return nil, err
		}
		granted = append(granted, g)
	}
	return egress.NewBroker(context.WithoutCancel(ctx), egress.BrokerConfig{
		Decisions: turns{s},
		Turns:     turns{s}, Book: choice, Upstreams: ups, Grants: granted, Content: s.cfg.Broker.Content == config.On, Now: time.Now, Log: s.opt.Log,
	}), nil
}

// turns passes calls of the proxy and the broker on to the engine, which is made after both.
type turns struct{ s *server }

// Network implements egress.Sessions.
func (t turns) Network(ctx context.Context, id holdfast.SessionID) (check.Reach, error) {
	return t.s.engine.Network(ctx, id)
}

// RecordEgress implements egress.Recorder.
func (t turns) RecordEgress(ctx context.Context, id holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) error {
	return t.s.engine.RecordEgress(ctx, id, typ, d)
}

// Traffic implements egress.Turns.
func (t turns) Traffic(ctx context.Context, id holdfast.SessionID) (runtime.Traffic, error) {
	return t.s.engine.Traffic(ctx, id)
}

// listenerModel is the name of a box's listener for connections to the model API.
const listenerModel = "model"

// accepted serves a connection that a listener in a session's box accepted.
func (s *server) accepted(id holdfast.SessionID, name string, conn net.Conn) {
	switch {
	case id != "" && (name == listenerModel || name == acp.ModelListener):
		s.out.broker.Serve(id, "", conn)
	case id != "" && name == acp.KeyedModelListener:
		s.out.broker.Serve(id, s.out.keys.Of(id), conn)
	case id != "" && name == network.Listener:
		s.out.proxy.Serve(id, "", conn)
	case id != "" && name == network.KeyedListener:
		s.out.proxy.Serve(id, s.out.keys.Of(id), conn)
	default:
		_ = conn.Close()
	}
}

// closeEgress closes the connections of boxes. Their boxd holds new connections until the next
// server attaches.
func (s *server) closeEgress() error {
	var errs []error
	if s.out.broker != nil {
		errs = append(errs, s.out.broker.Close())
	}
	if s.out.proxy != nil {
		errs = append(errs, s.out.proxy.Close())
	}
	return errors.Join(errs...)
}

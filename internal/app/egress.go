package app

import (
	"context"
	"errors"
	"net"
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
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// newBroker makes the broker for the configured providers. The server itself answers for the
// scripted model.
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

func (s *server) newProxy(ctx context.Context) *egress.Proxy {
	// Close ends the proxy when the server stops, not the end of ctx.
	return egress.NewProxy(context.WithoutCancel(ctx), egress.ProxyConfig{
		Sessions: turns{s}, Resolve: s.opt.Resolve, Dial: s.opt.Dial, Now: time.Now, Log: s.opt.Log,
	})
}

// turns passes calls on to the engine, which is made later than the proxy and the broker.
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
		s.broker.Serve(id, conn)
	case id != "" && name == network.Listener:
		s.proxy.Serve(id, conn)
	default:
		_ = conn.Close()
	}
}

// closeEgress closes the connections of boxes. Their boxd holds new connections until the next
// server attaches.
func (s *server) closeEgress() error {
	var errs []error
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	return errors.Join(errs...)
}

package app

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/egress"
	"github.com/holdfast-run/holdfast/internal/models"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// newBroker makes the broker of the providers that are configured. The scripted model
// answers within the server.
func (s *server) newBroker(choice *models.Models) (*egress.Broker, error) {
	found, err := providers(s.cfg, s.opt.Environ)
	if err != nil {
		return nil, err
	}
	scripted := double.New(double.Config{Record: func(double.Request) error { return nil }})
	ups := map[string]egress.Upstream{
		egress.Scripted: {URL: "http://scripted.invalid", Transport: egress.InProcess(scripted)},
	}
	for _, p := range found {
		if p.Configured {
			ups[p.Name] = egress.Upstream{
				URL: p.URL, Key: func() (string, error) { return p.key, nil }, Transport: remote.NewClient(s.cfg.Models.Silence).Transport,
			}
		}
	}
	return egress.NewBroker(egress.BrokerConfig{Turns: turns{s}, Book: choice, Upstreams: ups, Now: time.Now}), nil
}

// turns asks the engine, which is made after what it starts boxes with.
type turns struct{ s *server }

// Traffic implements egress.Turns.
func (t turns) Traffic(ctx context.Context, id holdfast.SessionID) (runtime.Traffic, error) {
	return t.s.engine.Traffic(ctx, id)
}

// The listeners of a box whose connections end here.
const (
	listenerModel = "model"
)

// accepted serves what the listeners of a box accepted.
func (s *server) accepted(box holdfast.BoxID) sandbox.Handler {
	session, ok := strings.CutPrefix(string(box), string(holdfast.SessionBox("")))
	id := holdfast.SessionID(session)
	return func(name string, conn net.Conn) {
		switch {
		case ok && name == listenerModel:
			s.broker.Serve(id, conn)
		default:
			_ = conn.Close()
		}
	}
}

// closeEgress drops what boxes have open. Their boxd holds new connections for the
// next server.
func (s *server) closeEgress() error {
	if s.broker == nil {
		return nil
	}
	return s.broker.Close()
}

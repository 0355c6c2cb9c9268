package egress_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/egress"
)

// machine holds the interfaces and the clock of a test.
type machine struct {
	mu    sync.Mutex
	nets  []netip.Prefix
	err   error
	reads int
	at    time.Time
}

func (m *machine) own() ([]netip.Prefix, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	return m.nets, m.err
}

func (m *machine) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func (m *machine) set(after time.Duration, err error, nets ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.err, m.nets = m.at.Add(after), err, nil
	for _, n := range nets {
		m.nets = append(m.nets, netip.MustParsePrefix(n))
	}
}

// TestHZ7_TheMachinesOwnAddressesAreNotPublic: addresses that the Internet routes to
// this machine or its neighbours are as private as 127.0.0.1, once the interface has
// them.
func TestHZ7_TheMachinesOwnAddressesAreNotPublic(t *testing.T) {
	s, _ := site(t)
	w := newWorld(t, s.Listener.Addr().String(), []string{"*"})
	m := &machine{at: time.Now()}
	m.set(0, nil, "93.184.216.34/24", "2a01:4f8:1:2::5/64", "151.101.1.1/0", "2a00::1/16")
	_ = w.p.Close()
	w.p = egress.NewProxy(context.WithoutCancel(t.Context()), egress.ProxyConfig{
		Sessions: w, Resolve: w.resolve, Dial: w.dial, Own: m.own, Now: m.now, Log: slog.New(slog.DiscardHandler),
	})
	try := func(addr string) string {
		w.names["a.example"] = [][]netip.Addr{{netip.MustParseAddr(addr)}}
		return w.say("GET http://a.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	}
	for _, a := range []string{
		"93.184.216.34", "93.184.216.1", "::ffff:93.184.216.99", "2a01:4f8:1:2::5", "2a01:4f8:1:2:ffff::1", "151.101.1.1", "2a00::1",
	} {
		if out := try(a); !strings.Contains(out, "no public address") {
			t.Errorf("%s: %q", a, out)
		}
	}
	// An interface with the prefix of a tunnel for all traffic blocks nothing else.
	for _, a := range []string{"93.184.215.14", "2a01:4f8:1:3::5", "151.101.1.2", "2a00::2"} {
		if out := try(a); !strings.HasPrefix(out, "HTTP/1.1 200") {
			t.Errorf("%s: %q", a, out)
		}
	}
	if m.reads != 1 {
		t.Errorf("the interfaces were read %d times within a moment", m.reads)
	}
	// A new address of an interface is seen; if interfaces cannot be read, nothing passes.
	m.set(time.Minute, nil, "93.184.215.14/32")
	if out := try("93.184.215.14"); !strings.Contains(out, "no public address") {
		t.Errorf("a new address: %q", out)
	}
	m.set(time.Minute, errors.New("not permitted"))
	if out := try("151.101.1.2"); strings.HasPrefix(out, "HTTP/1.1 200") {
		t.Errorf("unread interfaces: %q", out)
	}
	m.set(time.Minute, nil)
	if out := try("93.184.215.14"); !strings.HasPrefix(out, "HTTP/1.1 200") {
		t.Errorf("afterwards: %q", out)
	}
}

// This machine has at least its loopback addresses.
func TestInterfacesAreRead(t *testing.T) {
	nets, err := egress.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nets {
		if n.Contains(netip.MustParseAddr("127.0.0.1")) {
			return
		}
	}
	t.Errorf("%v", nets)
}

package httpapi

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// streams knows the answers that go on, so that a stop can end them.
type streams struct {
	mu      sync.Mutex
	stopped bool
	last    int
	running map[int]opened
	// revoked reports whether a key opens nothing any more.
	revoked func(holdfast.KeyID) bool
}

// opened is an answer that goes on, and whose it is; empty for the owner's.
type opened struct {
	cancel context.CancelFunc
	key    holdfast.KeyID
}

// join makes the context of an answer that goes on: it ends with the request,
// with the API, or with the caller's key. The function returned must be called.
func (s *streams) join(ctx context.Context) (context.Context, context.CancelFunc) {
	key := callerOf(ctx).key.ID
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Whoever revokes marks the key first and looks here afterwards.
	if s.stopped || key != "" && s.revoked(key) {
		cancel()
		return ctx, cancel
	}
	if s.running == nil {
		s.running = map[int]opened{}
	}
	s.last++
	n := s.last
	s.running[n] = opened{cancel, key}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.running, n)
		s.mu.Unlock()
	}
}

// end ends the answers of a key that was revoked.
func (s *streams) end(key holdfast.KeyID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.running {
		if o.key == key {
			o.cancel()
		}
	}
}

func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, o := range s.running {
		o.cancel()
	}
}

// open refuses what would be cut at once; a stream that was cut says the same.
func (s *streams) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return holdfast.Errorf(holdfast.KindUnavailable, "request", "the server is stopping").WithHint("try again in a moment")
	}
	return nil
}

// Loopback reports whether a listening address is reachable from this machine
// only.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		host = listen
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

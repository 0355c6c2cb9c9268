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
	cancels map[int]context.CancelFunc
}

// join makes the context of an answer that goes on: it ends with the request or
// with the API. The function returned must be called.
func (s *streams) join(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		cancel()
		return ctx, cancel
	}
	if s.cancels == nil {
		s.cancels = map[int]context.CancelFunc{}
	}
	s.last++
	n := s.last
	s.cancels[n] = cancel
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.cancels, n)
		s.mu.Unlock()
	}
}

func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, cancel := range s.cancels {
		cancel()
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

// isLoopback reports whether a listening address is reachable from this machine
// only.
func isLoopback(listen string) bool {
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

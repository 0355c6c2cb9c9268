package boxd

import (
	"context"
	"time"
)

// idleAfter is how long nothing happens before an idle boxd is trimmed, and how
// often that is looked at.
const idleAfter = 3 * time.Second

// watchIdle calls trim once each time the server was left alone for a while. It
// ends with ctx or with the server.
func (s *Server) watchIdle(ctx context.Context, trim func()) {
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	seen, trimmed := int64(-1), false
	for {
		select {
		case <-tick.C:
		case <-s.stopped:
			return
		case <-ctx.Done():
			return
		}
		served := s.served.Load()
		if served != seen || s.streams.Load() > 0 {
			seen, trimmed = served, false
			continue
		}
		if !trimmed {
			trimmed = true
			trim()
		}
	}
}

package boxd

import (
	"context"
	"time"
)

// idleAfter is how often watchIdle looks for activity. boxd counts as idle when nothing happened
// for one such interval.
const idleAfter = 3 * time.Second

// watchIdle calls trim once each time the server becomes idle. It ends with ctx or with the
// server.
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
		served := s.load.served.Load()
		if served != seen || s.load.streams.Load() > 0 {
			seen, trimmed = served, false
			continue
		}
		if !trimmed {
			trimmed = true
			trim()
		}
	}
}

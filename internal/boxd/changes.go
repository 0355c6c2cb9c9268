package boxd

import (
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// watch lists the workspace before a call starts, if the call asks for that. The
// function that it returns says, once the call has ended, which files differ.
func (s *Server) watch(e *execution) func(endReason) *wire.Changes {
	if !e.watch {
		return func(endReason) *wire.Changes { return nil }
	}
	since := s.list()
	return func(reason endReason) *wire.Changes {
		if reason == endCanceled || reason == endStopped {
			// Whoever ends a call waits for it, and a box that stops has little time.
			return &wire.Changes{Unseen: "the call was ended before it was over"}
		}
		c := since()
		return &c
	}
}

// list lists the workspace as a tool sees it. The function that it returns lists it again
// and compares; it may be called once.
func (s *Server) list() func() wire.Changes {
	if s.cfg.Watch == nil {
		return func() wire.Changes { return wire.Changes{Unseen: "this box does not list files"} }
	}
	var compare func() wire.Changes
	err := s.do(func() error { compare = s.cfg.Watch(); return nil })
	return func() (c wire.Changes) {
		if err == nil {
			err = s.do(func() error { c = compare(); return nil })
		}
		if err != nil {
			return wire.Changes{Unseen: err.Error()}
		}
		return c
	}
}

// watches are listings by name, the newest last.
type watches struct {
	mu    sync.Mutex
	names []string
	since map[string]func() wire.Changes
}

// serveWatch serves OpWatch.
func (s *Server) serveWatch(req wire.WatchRequest) (wire.Changes, error) {
	if req.Name == "" || len(req.Name) > wire.MaxWatchName {
		return wire.Changes{}, holdfast.Errorf(holdfast.KindInvalid, "boxd watch", "name %s has %d bytes, not 1 to %d", holdfast.Quote(req.Name), len(req.Name), wire.MaxWatchName)
	}
	w := &s.watches
	w.mu.Lock()
	since := w.since[req.Name]
	if since == nil && !req.End {
		// The listing is made outside of the lock; whoever asks for the end waits for it.
		begin := sync.OnceValue(s.list)
		since = sync.OnceValue(func() wire.Changes { return begin()() })
		if w.since == nil {
			w.since = map[string]func() wire.Changes{}
		}
		w.since[req.Name], w.names = since, append(w.names, req.Name)
		if len(w.names) > wire.MaxWatches {
			delete(w.since, w.names[0])
			w.names = slices.Delete(w.names, 0, 1)
		}
		w.mu.Unlock()
		begin()
		return wire.Changes{}, nil
	}
	w.mu.Unlock()
	switch {
	case !req.End:
		return wire.Changes{}, nil
	case since == nil:
		return wire.Changes{}, holdfast.Errorf(holdfast.KindNotFound, "boxd watch", "no listing is named %s", holdfast.Quote(req.Name))
	}
	return since(), nil
}

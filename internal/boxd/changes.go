package boxd

import (
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// watch lists the files of the workspace before a call starts, if e.watch is set. The function that it returns is run
// after the end of the call, and returns the files that have changed since; it returns nil if e.watch is not set.
func (s *Server) watch(e *execution) func(endReason) *wire.Changes {
	if !e.watch {
		return func(endReason) *wire.Changes { return nil }
	}
	since := s.list()
	return func(reason endReason) *wire.Changes {
		if reason == endCanceled || reason == endStopped {
			// Make no second listing: the caller that ended the call waits, and a box that stops has little time.
			return &wire.Changes{Unseen: "the call was canceled or its box stopped before it finished"}
		}
		c := since()
		return &c
	}
}

// list lists the files of the workspace with the rights of a tool. The function that it returns lists
// them again and returns the differences. This function may be called only once.
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

// watches holds the listings of the workspace that OpWatch has started, by name. names has the newest name last.
type watches struct {
	mu    sync.Mutex
	names []string
	since map[string]func() wire.Changes
}

// serveWatch serves OpWatch: it makes a listing under a name, or ends the listing with that name and returns the changes
// since. A listing that exists is not made again.
func (s *Server) serveWatch(req wire.WatchRequest) (wire.Changes, error) {
	if req.Name == "" || len(req.Name) > wire.MaxWatchName {
		return wire.Changes{}, holdfast.Errorf(holdfast.KindInvalid, "boxd watch", "the name %s of a workspace listing has %d bytes, but must have 1 to %d", holdfast.Quote(req.Name), len(req.Name), wire.MaxWatchName)
	}
	w := &s.watches
	w.mu.Lock()
	since := w.since[req.Name]
	if since == nil && !req.End {
		// Make the listing without the lock. A request that ends the listing meanwhile waits until it is made.
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
		return wire.Changes{}, holdfast.Errorf(holdfast.KindNotFound, "boxd watch", "there is no listing of the workspace with the name %s", holdfast.Quote(req.Name))
	}
	return since(), nil
}

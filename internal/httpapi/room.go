package httpapi

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-run/holdfast"
)

// roomBytes is how many bytes of large bodies are handled at once. A body is read,
// decoded, recorded and encoded again, so that each of its bytes takes several bytes of
// memory for a moment: many large bodies at once would end a small server. One message
// of the largest size fits.
const roomBytes = maxJSON

// room bounds the large bodies that are handled at once.
type room struct {
	// limits holds the routes whose bodies count, with their largest body.
	limits map[string]int64
	sem    *semaphore.Weighted
}

type roomKey struct{}

// enter waits until there is room for a request's body. The request holds the room
// until the answer begins, or leaveRoom or leave is called.
func (a *API) enter(w *seen, r *http.Request, pattern string) (_ *http.Request, leave func(), err error) {
	limit, heavy := a.room.limits[pattern]
	n := r.ContentLength
	if n < 0 {
		n = limit // the most that it may become
	}
	if !heavy || n <= maxSmall || n > limit {
		return r, func() {}, nil // a body over the limit is refused unread
	}
	n = min(n, roomBytes)
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.ReadTimeout)
	defer cancel()
	if err := a.room.sem.Acquire(ctx, n); err != nil {
		return r, nil, &waiting{
			err:  holdfast.Errorf(holdfast.KindBusy, "request", "there is no room for a body of %d bytes beside those that are being handled", n).WithHint("try again"),
			wait: a.cfg.ReadTimeout,
		}
	}
	leave = sync.OnceFunc(func() { a.room.sem.Release(n) })
	w.begun = leave
	return r.WithContext(context.WithValue(r.Context(), roomKey{}, leave)), leave, nil
}

// leaveRoom gives the room back: the request has been decoded, and the rest may take
// long.
func leaveRoom(ctx context.Context) {
	if leave, ok := ctx.Value(roomKey{}).(func()); ok {
		leave()
	}
}

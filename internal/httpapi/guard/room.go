package guard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// roomBytes is how many bytes of large bodies are handled at once. A body is read,
// decoded, recorded and encoded again, so that each of its bytes takes several bytes of
// memory for a moment: many large bodies at once would end a small server. One message
// of the largest size fits.
const roomBytes = body.Large

// room bounds the large bodies that are handled at once.
type room struct {
	bytes *semaphore.Weighted
	// wait is how long a request waits for room.
	wait time.Duration
}

func newRoom(wait time.Duration) *room { return &room{semaphore.NewWeighted(roomBytes), wait} }

type roomKey struct{}

// enter waits until there is room for a request's body. The request holds the room until
// its answer begins, or until LeaveRoom or leave is called.
func (m *room) enter(w *answer, r *http.Request, rule Rule) (_ *http.Request, leave func(), err error) {
	n := r.ContentLength
	if n < 0 {
		n = rule.MaxBody // it may become as large as that
	}
	if rule.Streamed || n <= body.Small {
		return r, func() {}, nil
	}
	n = min(n, roomBytes)
	ctx, cancel := context.WithTimeout(r.Context(), m.wait)
	defer cancel()
	if err := m.bytes.Acquire(ctx, n); err != nil {
		return r, nil, problem.After(m.wait, holdfast.Errorf(holdfast.KindBusy, "request",
			"the server has no memory for a body of %d bytes until it has handled others", n).WithHint("try again"))
	}
	leave = sync.OnceFunc(func() { m.bytes.Release(n) })
	w.begun = leave
	return r.WithContext(context.WithValue(r.Context(), roomKey{}, leave)), leave, nil
}

// LeaveRoom gives back the room of the request of ctx. A route calls it when the body has
// been decoded or is not kept in memory, and the rest may take long.
func LeaveRoom(ctx context.Context) {
	if leave, ok := ctx.Value(roomKey{}).(func()); ok {
		leave()
	}
}

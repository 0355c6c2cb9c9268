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

// roomBytes is the most bytes of large bodies that are handled at the same time. Reading, decoding
// and recording a body takes several times its size in memory, so that many large bodies at once
// would run a small server out of memory. One message of the largest size fits.
const roomBytes = body.Large

// room limits the large bodies that are handled at the same time.
type room struct {
	bytes *semaphore.Weighted
	// wait is the longest time that a request waits for memory for its body.
	wait time.Duration
}

func newRoom(wait time.Duration) *room { return &room{semaphore.NewWeighted(roomBytes), wait} }

type roomKey struct{}

// enter waits until the bodies handled now leave enough of roomBytes for this request's body, and
// reserves its size. The reservation ends when the answer begins, or when LeaveRoom or leave is
// called. A small or streamed body needs none.
func (m *room) enter(w *answer, r *http.Request, rule Rule) (_ *http.Request, leave func(), err error) {
	n := r.ContentLength
	if n < 0 {
		n = rule.MaxBody // unknown length: reserve for the largest allowed body
	}
	if rule.Streamed || n <= body.Small {
		return r, func() {}, nil
	}
	n = min(n, roomBytes)
	ctx, cancel := context.WithTimeout(r.Context(), m.wait)
	defer cancel()
	if err := m.bytes.Acquire(ctx, n); err != nil {
		return r, nil, problem.After(m.wait, holdfast.Errorf(holdfast.KindBusy, "request",
			"the server has no memory for a body of up to %d bytes until it has handled other requests", n).WithHint("try again"))
	}
	leave = sync.OnceFunc(func() { m.bytes.Release(n) })
	w.begun = leave
	return r.WithContext(context.WithValue(r.Context(), roomKey{}, leave)), leave, nil
}

// LeaveRoom releases the memory reserved for the body of the request of ctx. A route calls it when
// it no longer keeps the body in memory and its remaining work may take long.
func LeaveRoom(ctx context.Context) {
	if leave, ok := ctx.Value(roomKey{}).(func()); ok {
		leave()
	}
}

package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// The codes of the notices that the loop records.
const (
	// NoticeRetry: a model call failed and is tried again.
	NoticeRetry = "model.retry"
	// NoticeVoid: the deltas since the last recorded entry of this turn are void.
	NoticeVoid = holdfast.NoticeVoid
	// NoticeReissued: a model call may have been cut off by a crash and is made
	// again; the deltas since the last recorded entry of this turn are void.
	NoticeReissued = "model.reissued"
	// NoticeParked: the provider takes no calls before Until; the turn waits.
	NoticeParked = "model.parked"
)

// Retry is how failed model calls are tried again. Zero fields take the defaults.
type Retry struct {
	// Attempts bounds the tries of one call, the first included (default 5).
	Attempts int
	// Base is the first pause, doubled each time up to Most, with ±25 % jitter
	// (defaults 500 ms and 30 s). What the provider asks for counts when it is
	// more; more than Most, or than a minute, is not waited for.
	Base, Most time.Duration
	// NoPark fails a turn whose provider names a longer wait, instead of letting it
	// wait; LongestPark is the longest wait it takes (default 24 h).
	NoPark      bool
	LongestPark time.Duration
}

const (
	// longestWait is what a turn waits for without being parked.
	longestWait = time.Minute
	// defaultPark is the longest wait of a parked turn, mostParks how often in a row
	// a turn is parked: a provider that never takes a call ends it.
	defaultPark = 24 * time.Hour
	mostParks   = 20
)

func (p Retry) attempts() int {
	if p.Attempts > 0 {
		return p.Attempts
	}
	return 5
}

// pause is how long to wait after the n-th failure, counting from 0; false when
// the provider asks for more than we wait.
func (p Retry) pause(n int, asked, rnd float64) (time.Duration, bool) {
	base, most := p.Base, p.Most
	if base <= 0 {
		base = 500 * time.Millisecond
	}
	if most <= 0 {
		most = 30 * time.Second
	}
	d := most
	if n < 30 && base<<n < most {
		d = base << n
	}
	d = time.Duration(float64(d) * (0.75 + 0.5*rnd))
	if asked > max(most, longestWait).Seconds() {
		return 0, false
	}
	return max(d, time.Duration(asked*float64(time.Second))), true
}

// park is whether a turn waits for what its provider asks.
func (p Retry) park(asked float64) bool {
	longest := p.LongestPark
	if longest <= 0 {
		longest = defaultPark
	}
	return !p.NoPark && asked <= longest.Seconds()
}

// ask makes a model call, again as long as it fails in a way that may pass.
func (r *run) ask(ctx context.Context) (reply, error) {
	parks := 0
	for n := 0; ; n++ {
		a, err := r.call(ctx, n+1)
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return reply{}, r.gaveUp(context.Cause(ctx), a)
		}
		var f *model.Failure
		if !errors.As(err, &f) {
			return reply{}, r.gaveUp(r.failed(err), a)
		}
		wait, patient := r.Retry.pause(n, f.RetryAfterSeconds, r.Rand())
		parked := f.Retryable && !patient && parks < mostParks && r.Retry.park(f.RetryAfterSeconds)
		if !parked && (!f.Retryable || n+1 >= r.Retry.attempts() || !patient) {
			return reply{}, r.gaveUp(r.failed(err), a)
		}
		if a.request != nil {
			r.add(holdfast.EventModelRequest, *a.request)
		}
		if a.shown {
			r.add(holdfast.EventNotice, holdfast.Notice{Code: NoticeVoid, Text: "the answer broke off; what was shown of it is void"})
		}
		if parked {
			// The wait is the provider's own: what failed before it does not count.
			n, parks = -1, parks+1
			err = r.park(ctx, f)
		} else {
			err = r.pause(ctx, f, n, wait)
		}
		if err != nil {
			return reply{}, err
		}
	}
}

// call makes one model call within the budgets.
func (r *run) call(ctx context.Context, attempt int) (reply, error) {
	req := &model.Request{
		Session: r.c.Session, Model: r.c.Model, System: r.c.System, Messages: r.c.Messages, Tools: r.Tools.offered,
		MaxTokens: r.MaxTokens,
	}
	settle, err := r.reserve(req)
	if err != nil {
		return reply{}, err
	}
	if r.Book != nil {
		r.asked = r.Book.Provider(r.c.Model)
	}
	began := time.Time{}
	if r.asked != "" {
		began = r.Now()
	}
	a, err := r.stream(ctx, req)
	var f *model.Failure
	if errors.As(err, &f) {
		a.usage, a.id = f.Usage, f.RequestID
	}
	a.usage = a.usage.Clamp() // the provider may have reported anything
	if r.Book != nil && a.usage != (holdfast.Usage{}) {
		a.usage = r.Book.Price(r.c.Model, a.usage)
	}
	settle(a.usage, err == nil)
	r.c.Usage = r.c.Usage.Add(a.usage)
	if r.asked != "" {
		a.request = r.request(req, &a, err, attempt, began)
	}
	return a, err
}

// reserve sets aside what a call may use up: its size, and the longest answer.
func (r *run) reserve(req *model.Request) (func(holdfast.Usage, bool), error) {
	if r.env.Meter == nil {
		return func(holdfast.Usage, bool) {}, nil
	}
	var most holdfast.Usage
	if r.env.Meter.Bounded() {
		most = holdfast.Usage{InputTokens: (req.Bytes() + 3) / 4, OutputTokens: int64(req.MaxTokens)}
		if r.Book != nil {
			most = dearest(r.Book, req.Model, most)
		}
	}
	return r.env.Meter.Reserve(most)
}

// dearest prices a call as if the cache took its input in, where that costs more.
func dearest(book model.Book, name string, u holdfast.Usage) holdfast.Usage {
	cached := u
	cached.InputTokens, cached.CacheWriteTokens = 0, u.InputTokens
	cost := book.Price(name, cached).CostMicroUSD
	u = book.Price(name, u)
	u.CostMicroUSD = max(u.CostMicroUSD, cost)
	return u
}

// request is the event of a call.
func (r *run) request(req *model.Request, a *reply, err error, attempt int, began time.Time) *holdfast.ModelRequest {
	e := &holdfast.ModelRequest{
		Provider: r.asked, Model: req.Model, Status: holdfast.StatusOK, Attempt: attempt, RequestID: valid(a.id),
		Messages: len(req.Messages), Bytes: req.Bytes(), Usage: a.usage, DurationMS: milliseconds(r.Now().Sub(began)),
	}
	if !a.first.IsZero() {
		e.FirstMS = milliseconds(a.first.Sub(began))
	}
	var f *model.Failure
	switch {
	case err == nil:
	case errors.As(err, &f):
		e.Status, e.Message = f.Class, valid(f.Message)
	case errors.Is(err, context.Canceled):
		e.Status = "canceled"
	default:
		e.Status, e.Message = "error", valid(err.Error())
	}
	return e
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// gaveUp records the request of a call that is not tried again, and what else
// waits to be; then it returns why.
func (r *run) gaveUp(err error, a reply) error {
	if a.request == nil {
		return err
	}
	r.add(holdfast.EventModelRequest, *a.request)
	if ferr := r.flush(); ferr != nil {
		return ferr
	}
	return err
}

// pause tells that a call is tried again and waits until then.
func (r *run) pause(ctx context.Context, f *model.Failure, n int, wait time.Duration) error {
	r.add(holdfast.EventNotice, holdfast.Notice{
		Code: NoticeRetry,
		Text: fmt.Sprintf("%s; trying again in %s (%d of %d)", valid(f.Error()), wait.Round(time.Millisecond), n+2, r.Retry.attempts()),
	})
	if err := r.flush(); err != nil {
		return err
	}
	return sleep(ctx, wait)
}

// park records when the provider takes calls again and waits until then.
func (r *run) park(ctx context.Context, f *model.Failure) error {
	wait := time.Duration(f.RetryAfterSeconds * float64(time.Second))
	// A little later, not all at once.
	wait += time.Duration(r.Rand() * float64(min(wait/20, 30*time.Second)))
	until := r.Now().Add(wait).UTC().Truncate(time.Millisecond)
	r.add(holdfast.EventNotice, holdfast.Notice{
		Code: NoticeParked, Until: &until,
		Text: fmt.Sprintf("%s; the turn is parked until %s", valid(f.Error()), until.Format(time.RFC3339)),
	})
	if err := r.flush(); err != nil {
		return err
	}
	return r.wait(ctx, until)
}

// wait waits until a time that is in the log.
func (r *run) wait(ctx context.Context, until time.Time) error {
	r.env.At("parked")
	if r.env.Meter != nil {
		return r.env.Meter.Park(ctx, until)
	}
	return sleep(ctx, until.Sub(r.Now()))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failed turns a provider's error into the turn's.
func (r *run) failed(err error) error {
	var f *model.Failure
	if !errors.As(err, &f) {
		var known *holdfast.Error
		if errors.As(err, &known) {
			return err
		}
		return &holdfast.Error{Op: "model", Kind: holdfast.KindUnavailable, Msg: err.Error(), Err: err}
	}
	e := &holdfast.Error{Op: "model", Kind: holdfast.KindUnavailable, Msg: f.Class + ": " + f.Message, Err: err}
	switch f.Class {
	case "authentication":
		e.Kind, e.Hint = holdfast.KindUnauthenticated, "check the provider's key"
	case "permission":
		e.Kind, e.Hint = holdfast.KindDenied, "check what the provider's key may do"
	case "rate_limit":
		e.Kind, e.Hint = holdfast.KindBusy, "send the message again later"
	case "invalid":
		e.Kind = holdfast.KindInvalid
	default:
		e.Hint = "send the message again later"
	}
	if f.RetryAfterSeconds > 0 {
		at := r.Now().Add(time.Duration(f.RetryAfterSeconds * float64(time.Second))).Add(time.Second - 1).UTC()
		e.Msg += "; it takes calls again at " + at.Format(time.RFC3339)
	}
	if f.Hint != "" {
		e.Hint = f.Hint
	}
	return e
}

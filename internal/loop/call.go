package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// The codes of the notices that the loop records.
const (
	// NoticeRetry says that a model call failed and is tried again.
	NoticeRetry = "model.retry"
	// NoticeVoid says that the deltas since the last recorded entry of this turn are void.
	NoticeVoid = holdfast.NoticeVoid
	// NoticeReissued says that a crash may have cut off a model call, which is made again; the deltas
	// since the last recorded entry of this turn are void.
	NoticeReissued = "model.reissued"
	// NoticeParked says that the turn waits because the provider accepts no calls before Until.
	NoticeParked = "model.parked"
)

// Retry configures how failed model calls are tried again. Zero fields take the defaults.
type Retry struct {
	// Attempts is the largest number of tries of one call, the first included (default 5).
	Attempts int
	// Base is the first pause, doubled each time up to Most, with ±25 % jitter (defaults 500 ms and
	// 30 s). A longer pause that the provider asks for is used instead, unless it exceeds both Most
	// and a minute: then the turn is parked or fails.
	Base, Most time.Duration
	// NoPark makes a turn fail, instead of being parked, when its provider asks for a wait too long for a pause.
	// LongestPark is the longest wait for which a turn is parked (default 24 h).
	NoPark      bool
	LongestPark time.Duration
}

const (
	// longestWait is the longest wait asked for by the provider for which a turn always pauses instead of
	// being parked, even if Retry.Most is shorter.
	longestWait = time.Minute
	// defaultPark is the default of LongestPark. mostParks is how many times in a row a turn is
	// parked before it fails.
	defaultPark = 24 * time.Hour
	mostParks   = 20
)

func (p Retry) attempts() int {
	if p.Attempts > 0 {
		return p.Attempts
	}
	return 5
}

// pause returns how long to wait after the n-th failure, counting from 0; asked is the wait in seconds that
// the provider asks for, and rnd a random number. It returns false if asked is too long to wait without
// parking the turn.
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

// park reports whether a turn may be parked for the wait that its provider asks for.
func (p Retry) park(asked float64) bool {
	longest := p.LongestPark
	if longest <= 0 {
		longest = defaultPark
	}
	return !p.NoPark && asked <= longest.Seconds()
}

// caller makes the model calls of a turn: within its budgets, with retries after temporary failures, and with
// the waits that the provider asks for. It adds events of failed calls and waits to the batch.
type caller struct {
	loop  *Loop // the configuration, which does not change
	meter model.Meter
	rec   Recorder
	at    func(point string)
	batch *batch
	// provider is the name of the provider that is called over the network; empty for a model that
	// runs locally.
	provider string
}

// ask makes a model call, with retries after temporary failures.
func (k *caller) ask(ctx context.Context, c *Conversation) (reply, error) {
	parks := 0
	for n := 0; ; n++ {
		a, err := k.call(ctx, c, n+1)
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return reply{}, k.gaveUp(context.Cause(ctx), a)
		}
		var f *model.Failure
		if !errors.As(err, &f) {
			return reply{}, k.gaveUp(k.failed(err), a)
		}
		wait, patient := k.loop.Retry.pause(n, f.RetryAfterSeconds, k.loop.Rand())
		parked := f.Retryable && !patient && parks < mostParks && k.loop.Retry.park(f.RetryAfterSeconds)
		if !parked && (!f.Retryable || n+1 >= k.loop.Retry.attempts() || !patient) {
			return reply{}, k.gaveUp(k.failed(err), a)
		}
		if a.request != nil {
			k.batch.add(holdfast.EventModelRequest, *a.request)
		}
		if a.shown {
			k.batch.add(holdfast.EventNotice, holdfast.Notice{Code: NoticeVoid, Text: "the model's answer broke off; the text of it that was shown so far is void"})
		}
		if parked {
			// The turn was parked for the wait that the provider asked for, so count the attempts from 1 again.
			n, parks = -1, parks+1
			err = k.park(ctx, f)
		} else {
			err = k.pause(ctx, f, n, wait)
		}
		if err != nil {
			return reply{}, err
		}
	}
}

// call makes one model call within the budgets, and adds its usage to c.
func (k *caller) call(ctx context.Context, c *Conversation, attempt int) (reply, error) {
	req := &model.Request{
		Session: c.Session, Model: c.Model, System: c.System, Messages: c.Messages, Tools: k.loop.Tools.offered,
		MaxTokens: k.loop.MaxTokens, Counted: c.Counted,
	}
	settle, err := k.reserve(req)
	if err != nil {
		return reply{}, err
	}
	if k.loop.Book != nil {
		k.provider = k.loop.Book.Provider(c.Model)
	}
	began := time.Time{}
	if k.provider != "" {
		began = k.loop.Now()
	}
	a, err := k.stream(ctx, req)
	var f *model.Failure
	if errors.As(err, &f) {
		a.usage, a.id = f.Usage, f.RequestID
	}
	a.usage = a.usage.Clamp() // the provider may have reported negative or absurd numbers
	if k.loop.Book != nil && a.usage != (holdfast.Usage{}) {
		a.usage = k.loop.Book.Price(c.Model, a.usage)
	}
	settle(a.usage, err == nil)
	c.Usage = c.Usage.Add(a.usage)
	if k.provider != "" {
		a.request = k.request(req, &a, err, attempt, began)
	}
	return a, err
}

// reserve reserves the most that a call may use: the size of its request and the longest answer. If neither the
// session nor the turn has a budget, it reserves nothing. The returned function settles the reservation.
func (k *caller) reserve(req *model.Request) (func(holdfast.Usage, bool), error) {
	if k.meter == nil {
		return func(holdfast.Usage, bool) {}, nil
	}
	var most holdfast.Usage
	if k.meter.Bounded() {
		most = holdfast.Usage{InputTokens: (req.Bytes() + 3) / 4, OutputTokens: int64(req.MaxTokens)}
		if k.loop.Book != nil {
			most = dearest(k.loop.Book, req.Model, most)
		}
	}
	return k.meter.Reserve(most)
}

// dearest returns the usage u of a call with its price. Of two prices, with the input written to the
// provider's cache and without, it takes the higher one.
func dearest(book model.Book, name string, u holdfast.Usage) holdfast.Usage {
	cached := u
	cached.InputTokens, cached.CacheWriteTokens = 0, u.InputTokens
	cost := book.Price(name, cached).CostMicroUSD
	u = book.Price(name, u)
	u.CostMicroUSD = max(u.CostMicroUSD, cost)
	return u
}

// request returns the model.request event of a call.
func (k *caller) request(req *model.Request, a *reply, err error, attempt int, began time.Time) *holdfast.ModelRequest {
	e := &holdfast.ModelRequest{
		Provider: k.provider, Model: req.Model, Status: holdfast.StatusOK, Attempt: attempt, RequestID: valid(a.id),
		Messages: len(req.Messages), Bytes: req.Bytes(), Usage: a.usage, DurationMS: clock.Milliseconds(k.loop.Now().Sub(began)),
	}
	if !a.first.IsZero() {
		e.FirstMS = clock.Milliseconds(a.first.Sub(began))
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

// gaveUp records the event of a failed call that is not tried again, with the rest of the batch,
// and returns err.
func (k *caller) gaveUp(err error, a reply) error {
	if a.request == nil {
		return err
	}
	k.batch.add(holdfast.EventModelRequest, *a.request)
	if ferr := k.batch.flush(); ferr != nil {
		return ferr
	}
	return err
}

// pause records a notice that the call is tried again, and waits.
func (k *caller) pause(ctx context.Context, f *model.Failure, n int, wait time.Duration) error {
	k.batch.add(holdfast.EventNotice, holdfast.Notice{
		Code: NoticeRetry,
		Text: fmt.Sprintf("%s; trying again in %s (%d of %d)", valid(f.Error()), wait.Round(time.Millisecond), n+2, k.loop.Retry.attempts()),
	})
	if err := k.batch.flush(); err != nil {
		return err
	}
	return clock.Pause(ctx, wait)
}

// park records a notice with the time when the provider accepts calls again, and waits until then.
func (k *caller) park(ctx context.Context, f *model.Failure) error {
	wait := time.Duration(f.RetryAfterSeconds * float64(time.Second))
	// Add jitter, so that parked turns do not all call at once.
	wait += time.Duration(k.loop.Rand() * float64(min(wait/20, 30*time.Second)))
	until := k.loop.Now().Add(wait).UTC().Truncate(time.Millisecond)
	k.batch.add(holdfast.EventNotice, holdfast.Notice{
		Code: NoticeParked, Until: &until,
		Text: fmt.Sprintf("%s; the turn is parked until %s", valid(f.Error()), until.Format(time.RFC3339)),
	})
	if err := k.batch.flush(); err != nil {
		return err
	}
	return k.wait(ctx, until)
}

// wait waits until the given time, which a notice in the log names already.
func (k *caller) wait(ctx context.Context, until time.Time) error {
	k.at("parked")
	if k.meter != nil {
		return k.meter.Park(ctx, until)
	}
	return clock.Pause(ctx, until.Sub(k.loop.Now()))
}

// failed converts a provider's error to the error that the turn fails with.
func (k *caller) failed(err error) error {
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
		at := k.loop.Now().Add(time.Duration(f.RetryAfterSeconds * float64(time.Second))).Add(time.Second - 1).UTC()
		e.Msg += "; the provider accepts calls again at " + at.Format(time.RFC3339)
	}
	if f.Hint != "" {
		e.Hint = f.Hint
	}
	return e
}

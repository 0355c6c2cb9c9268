package claude

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
)

// errParked says that the turn waits for its provider.
var errParked = errors.New("the turn is parked")

// noticeParked is the code of the notice that tells of it; the engine and the native
// runtime read it.
const noticeParked = "model.parked"

// goOn is what the agent is told when the provider takes calls again.
const goOn = "<system-reminder>Your last answer was cut off by a limit of the model's provider, which has passed. Go on with what the user asked for.</system-reminder>"

// parkedStill waits for a provider that the log says the turn waits for.
func (x *run) parkedStill(ctx context.Context) error {
	if !x.mem.Parked || x.parked.IsZero() || !x.parked.After(x.r.cfg.Now()) {
		return nil
	}
	x.host.At("parked")
	if x.t.Meter != nil {
		if err := x.t.Meter.Park(ctx, x.parked); err != nil {
			return &leaving{err}
		}
		return nil
	}
	return sleep(ctx, x.parked.Sub(x.r.cfg.Now()))
}

const (
	// shortest is a wait that is left to the CLI, mostParks how often a turn is parked.
	shortest  = time.Second
	mostParks = 20
)

// limited reports until when the model's provider takes nothing, where that is why
// the CLI gave up.
func (x *run) limited(l *line) (until time.Time, ok bool) {
	cfg := &x.r.cfg
	if cfg.Limits == nil || cfg.NoPark || x.mem.Parks >= mostParks || l.Status != 429 && l.Status != 529 {
		return until, false
	}
	lim, known := cfg.Limits.LastLimit(x.t.Session.ID)
	if !known || lim.RetryAfter < shortest || lim.RetryAfter > cfg.LongestPark {
		return until, false
	}
	return lim.Until().UTC().Truncate(time.Millisecond), true
}

// park records when the turn goes on, and lets it wait.
func (x *run) park(ctx context.Context, until time.Time, why error) error {
	x.parked, x.mem.Parked, x.dirty = until, true, true
	x.mem.Parks++
	x.add(holdfast.EventNotice, holdfast.Notice{
		Code: noticeParked, Until: &until, Text: fmt.Sprintf("%s; the turn is parked until %s", why, until.Format(time.RFC3339)),
	})
	if err := x.flush(ctx); err != nil {
		return err
	}
	return errParked
}

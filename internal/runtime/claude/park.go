package claude

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// errParked ends a run whose turn now waits for its provider.
var errParked = errors.New("the turn is parked until its model provider accepts requests again")

// goOn is the message that tells an agent to continue its last answer, which was cut off.
const goOn = "<system-reminder>Your last answer was cut off: the model's provider or the sandbox was not available for a while, and tool calls of that answer were not carried out. Go on with what the user asked for.</system-reminder>"

const (
	// shortest is the shortest wait for which a turn is parked: shorter waits are left to the CLI. longestPark is the
	// longest one: a turn whose provider asks for more fails. mostParks is how many times a turn is parked at most.
	shortest    = time.Second
	longestPark = 24 * time.Hour
	mostParks   = 20
)

// waitParked waits until the time at which, according to the log, the provider accepts calls again.
func (x *run) waitParked(ctx context.Context) error {
	until := x.turn.Account.Parked
	if !x.mem.Parked || until.IsZero() || !until.After(x.r.cfg.Now()) {
		return nil
	}
	x.host.At("parked")
	if m := x.t.Meter; m != nil {
		return m.Park(ctx, until)
	}
	return clock.Pause(ctx, until.Sub(x.r.cfg.Now()))
}

// limited returns the time until which the model's provider refuses calls. ok is false if the result l has
// another cause, or if the turn may not be parked for that.
func (x *run) limited(l *line) (until time.Time, ok bool) {
	cfg := &x.r.cfg
	if cfg.Limits == nil || cfg.NoPark || x.mem.Parks >= mostParks || l.Status != 429 && l.Status != 529 {
		return until, false
	}
	lim, known := cfg.Limits.LastLimit(x.t.Session.ID)
	if !known || lim.RetryAfter < shortest || lim.RetryAfter > longestPark {
		return until, false
	}
	return lim.Until().UTC().Truncate(time.Millisecond), true
}

// park records until when the turn is parked, and ends the run.
func (x *run) park(ctx context.Context, until time.Time, why error) error {
	x.turn.Account.Parked, x.mem.Parked = until, true
	x.mem.Parks++
	x.turn.Recorder.Add(holdfast.EventNotice, holdfast.Notice{
		Code: resident.NoticeParked, Until: &until, Text: fmt.Sprintf("%s; the turn is parked until %s", why, until.Format(time.RFC3339)),
	})
	if err := x.flush(ctx); err != nil {
		return err
	}
	return resident.Leave(errParked)
}

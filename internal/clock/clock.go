// Package clock waits, and gives durations in the unit of the API.
//
// Every package may import it; it imports the standard library only. Invariant: no timer outlives
// its wait.
package clock

import (
	"context"
	"time"
)

// Pause waits for d. It returns nil when the time has passed, and the cause of ctx's end if ctx ended
// before.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Milliseconds returns a duration in milliseconds, the unit of all fields whose JSON names end in _ms. It drops
// fractions of a microsecond.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

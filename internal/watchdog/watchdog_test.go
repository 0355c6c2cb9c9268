package watchdog_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/internal/watchdog"
)

// turn is a turn that notes what is done to it.
type turn struct {
	began     time.Time
	progress  time.Time
	cancelled bool
	waits     bool
	// heeds: it ends when it is cancelled. mends: it can be settled.
	heeds, mends bool
	done         chan struct{}
	steps        []string
}

func (t *turn) note(s string) {
	t.steps = append(t.steps, time.Since(t.began).Round(time.Second).String()+" "+s)
}
func (t *turn) Done() <-chan struct{} { return t.done }
func (t *turn) Cancelled() bool       { return t.cancelled }
func (t *turn) Waits() bool           { return t.waits }
func (t *turn) Progress() time.Time   { return t.progress }
func (t *turn) Cancel() {
	t.note("cancel")
	if t.cancelled = true; t.heeds {
		close(t.done)
	}
}

func (t *turn) StopBox(context.Context) error { t.note("stop"); return errors.New("it does not stop") }

func (t *turn) Settle() error {
	t.note("settle")
	if !t.mends {
		t.mends = true
		return errors.New("the store is full")
	}
	close(t.done)
	return nil
}

// TestSteps: silence, then cancel, stop and settle, each after its time; what waits, moves or heeds
// is left alone.
func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		turn turn
		want []string
	}{
		"silent":    {turn{}, []string{"1m40s cancel", "1m50s stop", "2m0s settle", "2m10s settle"}},
		"heeds":     {turn{heeds: true}, []string{"1m40s cancel"}},
		"waits":     {turn{waits: true}, nil},
		"cancelled": {turn{cancelled: true, mends: true}, []string{"15s stop", "25s settle"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := c.turn
				one.began, one.progress, one.done = time.Now(), time.Now(), make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				w := watchdog.New(watchdog.Config{
					Turns: func() []watchdog.Turn {
						select {
						case <-one.done:
							return nil
						default:
							return []watchdog.Turn{&one}
						}
					},
					Silence: 100 * time.Second, Grace: 10 * time.Second, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
					Go: func(fn func()) bool { fn(); return true },
				})
				go w.Run(ctx)
				<-time.NewTimer(5 * time.Minute).C // of the bubble's clock
				cancel()
				synctest.Wait()
				if !slices.Equal(one.steps, c.want) {
					t.Errorf("got %q, want %q", one.steps, c.want)
				}
			})
		})
	}
}

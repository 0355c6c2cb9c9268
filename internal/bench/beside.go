package bench

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
)

// build is a server of one of two builds, with thirty sessions.
type build struct {
	*subject
	load *load
	ids  [30]holdfast.SessionID
	// perSecond and cost are what the last burst measured.
	perSecond, cost float64
}

// beside compares the program with another build of it. The servers of both run at the same time, and have the load of
// the turn rate in turn, half a second each: the speed of a machine changes more within a minute than two builds differ.
func beside(p *pass, ctx context.Context) error {
	var ours, other build
	for b, of := range map[*build]struct{ name, binary string }{&ours: {"ours", p.cfg.Binary}, &other: {"other", p.cfg.Beside}} {
		from := *p
		from.cfg.Binary = of.binary
		var err error
		if b.subject, err = from.serve(ctx, of.name); err != nil {
			return err
		}
		defer b.stop()
		if err := b.warm(ctx); err != nil {
			return err
		}
		defer b.load.CloseIdleConnections()
	}
	time.Sleep(2 * time.Second) // until both are idle
	p.add(Figure{
		Name: "server RSS at rest, more than the other build's", Unit: "MB", Judge: "size", Gate: 2, Rule: "2 MB",
		Samples: []float64{memoryOf(ours.PID, "VmRSS:") - memoryOf(other.PID, "VmRSS:")},
	})
	turns := Figure{Name: "turns per second, of the other build's", Unit: "×", Judge: "p50", Gate: 0.95, More: true, Rule: "0.95"}
	cost := Figure{Name: "the server's own CPU for a turn, of the other build's", Unit: "×", Judge: "p50", Gate: 1.05, Rule: "1.05"}
	first, second := &ours, &other
	for range 60 {
		for _, b := range []*build{first, second} {
			if err := b.burst(ctx); err != nil {
				return err
			}
		}
		first, second = second, first
		turns.Samples = append(turns.Samples, ours.perSecond/other.perSecond)
		cost.Samples = append(cost.Samples, ours.cost/other.cost)
	}
	p.add(turns)
	if cost.Samples[0] > 0 {
		p.add(cost)
	}
	return nil
}

// warm creates the sessions, and runs a first turn in each.
func (b *build) warm(ctx context.Context) (err error) {
	if b.load, err = b.subject.load(len(b.ids)); err != nil {
		return err
	}
	for i := range b.ids {
		if b.ids[i], err = b.create(ctx); err != nil {
			return err
		}
		if err := b.load.turn(ctx, b.ids[i], bashTrue); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) burst(ctx context.Context) (err error) {
	b.perSecond, b.cost, err = b.load.turns(ctx, b.PID, b.ids[:], time.Second/2)
	return err
}

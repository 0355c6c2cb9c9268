package bench

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
)

// build is one of the two builds that are compared: its server, with thirty sessions.
type build struct {
	name, binary string
	*subject
	load *load
	ids  [30]holdfast.SessionID
	// perSecond are the turns per second of the last burst, cost the milliseconds of CPU time of the server for one turn.
	perSecond, cost float64
}

// beside compares the program with another build. Both servers run at the same time, and get the load alternately, for
// half a second each: within a minute the speed of a machine changes by more than two builds differ.
func beside(p *pass, ctx context.Context) error {
	ours, other := build{name: "ours", binary: p.cfg.Binary}, build{name: "other", binary: p.cfg.Beside}
	first, second := &ours, &other
	for _, b := range []*build{first, second} {
		if err := b.begin(ctx, *p); err != nil {
			return err
		}
		defer b.end()
	}
	time.Sleep(2 * time.Second) // until both servers are idle
	p.add(Figure{
		Name: "server RSS at rest, more than the other build's", Unit: "MB", Judge: "size", Gate: 2, Rule: "2 MB",
		Samples: []float64{memoryOf(ours.PID, "VmRSS:") - memoryOf(other.PID, "VmRSS:")},
	})
	turns := Figure{Name: "turns per second, of the other build's", Unit: "×", Judge: "p50", Gate: 0.95, More: true, Rule: "0.95"}
	cost := Figure{Name: "the server's own CPU for a turn, of the other build's", Unit: "×", Judge: "p50", Gate: 1.05, Rule: "1.05"}
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

// begin starts the server, creates the sessions, and runs a first turn in each.
func (b *build) begin(ctx context.Context, p pass) (err error) {
	p.cfg.Binary = b.binary
	if b.subject, err = p.serve(ctx, b.name); err != nil {
		return err
	}
	b.load, err = b.subject.load(len(b.ids))
	for i := 0; err == nil && i < len(b.ids); i++ {
		if b.ids[i], err = b.create(ctx); err == nil {
			err = b.load.turn(ctx, b.ids[i], bashTrue)
		}
	}
	if err != nil {
		b.end()
	}
	return err
}

func (b *build) end() {
	b.load.CloseIdleConnections()
	b.stop()
}

// burst runs turns on one build's server for half a second.
func (b *build) burst(ctx context.Context) (err error) {
	b.perSecond, b.cost, err = b.load.turns(ctx, b.PID, b.ids[:], time.Second/2)
	return err
}

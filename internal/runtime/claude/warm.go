package claude

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// errNoWarm says that an agent has to be started with its first prompt.
var errNoWarm = errors.New("the history has to go with a prompt")

// Warm implements runtime.Warmer: it starts the CLI up to the end of the handshake.
func (r *Runtime) Warm(ctx context.Context, t runtime.Turn, host runtime.Host) error {
	if t.Session.Trust == holdfast.Trusted {
		return nil
	}
	x := r.newRun(t, host)
	x.warming = true
	if err := x.load(ctx); err != nil {
		return err
	}
	var err error
	if x.box, err = host.Box(ctx); err != nil {
		return err
	}
	if x.state.Call != "" && x.state.Boot == x.box.Boot() {
		// What became of it the turn finds out.
		return nil
	}
	inner, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		close(x.quit)
		x.wg.Wait()
	}()
	if err = x.start(inner); err == nil {
		err = x.converse(inner, ctx)
	}
	if x.link == nil {
		return err
	}
	x.link.detach()
	if err != nil {
		x.end(ctx)
		return errors.Join(err, x.flush(ctx))
	}
	return x.flush(ctx)
}

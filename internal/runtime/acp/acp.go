package acp

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

const op = "acp"

// Config configures a Runtime. Profile and Now are required.
type Config struct {
	Profile Profile
	Now     func() time.Time
	// Grace is how long an agent may take to stop when it is told to (default 5 s).
	Grace time.Duration
	// Handshake bounds the start of an agent (default 2 min).
	Handshake time.Duration
	// HistoryTokens bound what a new agent is told of a session; 0 is the default of
	// package retell.
	HistoryTokens int
}

// Runtime implements runtime.Runtime for one agent. Make one with New.
type Runtime struct {
	cfg Config
}

// New makes the runtime. A missing part is invalid; an agent that is not installed is
// not: its sessions say so when they are used.
func New(cfg Config) (*Runtime, error) {
	if cfg.Now == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "Now is required")
	}
	if err := cfg.Profile.check(); err != nil {
		return nil, err
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 5 * time.Second
	}
	if cfg.Handshake <= 0 {
		cfg.Handshake = 2 * time.Minute
	}
	return &Runtime{cfg: cfg}, nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return Prefix + r.cfg.Profile.Name }

// lateTime bounds what has to be done for a turn that was cancelled.
const lateTime = 20 * time.Second

// Require implements runtime.Requirer.
func (r *Runtime) Require(trust holdfast.Trust) error {
	if err := runtime.NeedsBox(op, r.Name(), trust); err != nil {
		return err
	}
	if api := r.cfg.Profile.Unserved; api != "" {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the runtime %s needs %s, which this server does not give to boxes", holdfast.Quote(r.Name()), api).
			WithHint("use --runtime acp:opencode, claude or native")
	}
	_, err := r.cfg.Profile.Find()
	return err
}

// Run implements runtime.Runtime.
func (r *Runtime) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// A turn that was cancelled is put in order all the same, within its time.
	unhook := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(lateTime+r.cfg.Grace, cancel)
		context.AfterFunc(late, func() { timer.Stop() })
	})
	defer unhook()
	x := &run{r: r, ctx: ctx, late: late, t: t, host: host, decided: make(chan verdict), warned: map[string]bool{}, began: r.cfg.Now()}
	if err := x.gather(); err != nil {
		return runtime.Result{}, err
	}
	defer x.letGo()
	if ctx.Err() == nil && t.Session.Trust == holdfast.Trusted {
		return runtime.Result{}, holdfast.Errorf(holdfast.KindUnavailable, op, "%s runs in boxes only, and session %s is trusted", holdfast.Quote(r.Name()), t.Session.ID).
			WithHint("holdfast session update %s --trust untrusted", t.Session.ID)
	}
	res, err := x.drive()
	if err != nil && ctx.Err() == nil && !x.torn {
		err = x.leave(err)
	}
	return res, err
}

// leave answers what a turn leaves open that ends with an error.
func (x *run) leave(err error) error {
	if x.a == nil || len(x.open) == 0 {
		return err
	}
	if p := x.a.data.Prompt; p != nil && p.Turn != x.t.ID {
		return err
	}
	if kerr := x.keep(x.ctx, append(x.flush("failed"), x.endTools("the turn failed")...)...); kerr != nil {
		return errors.Join(err, kerr)
	}
	return err
}

// maxReconnects bounds how often the pipe to the box may break in one run.
const maxReconnects = 5

// drive connects to an agent and goes through the turn's prompts, as often as it
// takes.
func (x *run) drive() (runtime.Result, error) {
	for n := 0; ; n++ {
		if x.answered() {
			if err := x.ctx.Err(); err != nil {
				return runtime.Result{}, context.Cause(x.ctx)
			}
			return x.result(nil), nil
		}
		again, res, err := x.once()
		if err != nil || !again {
			return res, err
		}
		if x.a.data.Prompt == nil && x.a.state.Call != "" && x.c != nil {
			n-- // answered, and there is more to say
			continue
		}
		if n >= maxReconnects {
			return runtime.Result{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent was lost %d times", n+1).
				WithHint("holdfast session events %s", x.t.Session.ID)
		}
		x.letGo()
	}
}

// once is drive with one attachment. again says that the agent was lost on the way
// and may be had again.
func (x *run) once() (again bool, res runtime.Result, err error) {
	if x.ctx.Err() != nil {
		return false, res, x.interruptedBefore()
	}
	if x.c == nil {
		if x.box, err = x.host.Box(x.ctx); err != nil {
			return false, res, err
		}
		if again, err = x.connect(); again || err != nil {
			return again, res, err
		}
	}
	if err = x.say(); err != nil {
		return false, res, err
	}
	return x.converse()
}

// letGo detaches from the agent, which goes on.
func (x *run) letGo() {
	if x.stopDeciding != nil {
		x.stopDeciding()
		x.deciding.Wait()
		x.stopDeciding = nil
	}
	if x.c != nil {
		x.c.detach()
		x.c = nil
	}
}

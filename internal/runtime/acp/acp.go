package acp

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

const op = "acp"

// Config configures a Runtime. Profile and Now are required.
type Config struct {
	Profile Profile
	Now     func() time.Time
	// Grace is how long an agent may take to stop after an interrupt (default 5 s).
	Grace time.Duration
	// Handshake is how long the start of an agent may take (default 2 min).
	Handshake time.Duration
}

// Runtime implements runtime.Runtime for one kind of agent. Make one with New.
type Runtime struct {
	cfg Config
	run resident.Config
}

// New makes the runtime. It returns KindInvalid if Now is missing or the profile is not valid. It does not fail if
// the agent is not installed: the sessions that use the agent report that.
func New(cfg Config) (*Runtime, error) {
	if cfg.Now == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "Config.Now of the ACP runtime is required")
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
	name := holdfast.Quote(cfg.Profile.Name)
	return &Runtime{cfg: cfg, run: resident.Config{
		Runtime: Prefix + cfg.Profile.Name, Op: op, Agent: "the agent " + name, Hint: cfg.Profile.hint(), Now: cfg.Now,
		Handshake: cfg.Handshake, Grace: cfg.Grace, Unreadable: func(err error) error {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "the output of the agent %s cannot be read: %w", name, err).
				WithHint("send the message again: that starts the agent again")
		},
	}}, nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return Prefix + r.cfg.Profile.Name }

// Require implements runtime.Requirer.
func (r *Runtime) Require(trust holdfast.Trust) error {
	_, err := r.cfg.Profile.Find(trust)
	return err
}

// Run implements runtime.Runtime.
func (r *Runtime) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	x := r.newRun(t, host)
	if err := x.load(ctx); err != nil {
		return runtime.Result{}, err
	}
	if !x.answered() {
		if err := x.turn.Drive(ctx, x); err != nil {
			return runtime.Result{}, err
		}
	} else if ctx.Err() != nil {
		return runtime.Result{}, context.Cause(ctx)
	}
	return x.result(), nil
}

package main

import (
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/soak"
)

type soakCmd struct {
	For      time.Duration `default:"30m" placeholder:"TIME" help:"How long the load goes on; its first sixth is warm-up (${default})."`
	Every    time.Duration `default:"20s" placeholder:"TIME" help:"Time between two samples (${default})."`
	Sessions int           `default:"50" placeholder:"N" help:"Sessions that work at once (${default})."`
	Dir      string        `placeholder:"DIR" help:"Where the data directory is made: put it on the disk in question."`
}

// Help is shown below the one-line description.
func (*soakCmd) Help() string {
	return `Starts a server of its own, lets sessions come, work and go, and samples the server whenever all of them rest: live heap after a forced collection, resident set, descriptors, goroutines. Ends with 1 if one of them grew.`
}

// Run soaks and reports.
func (c *soakCmd) Run(e *env) error {
	if c.Sessions < 1 || c.For <= 0 || c.Every <= 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "soak", "--sessions, --for and --every have to be over 0").WithHint("holdfast soak --for 30m --every 20s --sessions 50")
	}
	s, err := newSubject(c.Dir)
	if err != nil {
		return err
	}
	defer e.endWithReader()()
	cfg := soak.Config{Binary: s.binary, Env: s.env, Dir: s.dir, Sessions: c.Sessions, For: c.For, Every: c.Every, Progress: e.stderr}
	if e.json {
		cfg.Progress = io.Discard
	}
	rep, err := soak.Run(e.ctx, cfg)
	s.remove(e, err != nil || !rep.OK())
	if err != nil {
		return err
	}
	return e.verdict(rep)
}

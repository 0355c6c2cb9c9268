package main

import (
	"io"
	"os"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/faultloop"
	"github.com/holdfast-run/holdfast/internal/torture"
)

type tortureCmd struct {
	Rounds   int    `default:"160" placeholder:"N" help:"Kills in all, a third of them of boxd (${default})."`
	Faults   int    `placeholder:"N" help:"As root: N faults of every kind instead of kills alone. Power cuts, full disks, stopped and killed servers and boxes; 300 are a full run."`
	Sessions int    `default:"6" placeholder:"N" help:"Sessions that work at once (${default})."`
	Seed     uint64 `placeholder:"N" help:"Repeat a run's random choices; 0 takes the clock."`
	Dir      string `placeholder:"DIR" help:"Where the data directory is made: put it on the disk in question."`
}

// Help is shown below the one-line description.
func (*tortureCmd) Help() string {
	return `Runs sessions whose tools each append a unique line, and kills the server and the boxes with SIGKILL at random moments and at named points of a turn. Then checks that everything acknowledged is stored, every turn ended once, no line stands twice, and that no process, mount, cgroup or socket is left. It starts a server of its own and touches no other.

With --faults (root only) the data directory lies on a disk image of its own, and the server and its boxes are killed and stopped, the disk is full and the power is cut. After a cut the disk has only what was written to the device, and the machine another boot id. Then checks that no acknowledged message is lost, each lost effect was told, nothing happened twice and nothing is left.`
}

// Run tortures and reports.
func (t *tortureCmd) Run(e *env) error {
	if t.Rounds < 1 || t.Sessions < 1 || t.Faults < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "torture", "--rounds %d and --sessions %d must be at least 1, --faults %d at least 0", t.Rounds, t.Sessions, t.Faults).
			WithHint("holdfast torture --rounds 20")
	}
	s, err := newSubject(t.Dir)
	if err != nil {
		return err
	}
	defer e.endWithReader()()
	seed := t.Seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if t.Faults > 0 {
		return t.faults(e, s, seed)
	}
	cfg := torture.Config{Binary: s.binary, Env: s.env, Dir: s.dir, Rounds: t.Rounds, Sessions: t.Sessions, Seed: seed, Out: e.stdout}
	if e.json {
		cfg.Out = io.Discard
	}
	res, err := torture.Run(e.ctx, cfg)
	s.remove(e, err != nil || !res.OK())
	if err != nil {
		return err
	}
	return e.verdict(res)
}

// faults runs the loop of package faultloop, with faults of all kinds.
func (t *tortureCmd) faults(e *env, s *subject, seed uint64) error {
	cfg := faultloop.Config{Binary: s.binary, Env: s.env, Dir: s.dir, Faults: t.Faults, Sessions: t.Sessions, Seed: seed, Out: e.stdout}
	if e.json {
		cfg.Out = io.Discard
	}
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	res, err := faultloop.Run(e.ctx, cfg)
	s.remove(e, err != nil || !res.OK())
	if err != nil {
		return err
	}
	return e.verdict(res)
}

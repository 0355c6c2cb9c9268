package main

import (
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/torture"
)

type tortureCmd struct {
	Rounds    int    `default:"160" placeholder:"N" help:"Kills in all, a third of them of boxd (${default})."`
	Faults    int    `placeholder:"N" help:"As root: N faults of every kind instead of kills alone. Power cuts, full disks, stopped and killed servers and boxes; 300 are a full run."`
	Snapshots bool   `help:"Kill the server while it takes and restores snapshots, and compare every checkpoint."`
	Sessions  int    `default:"6" placeholder:"N" help:"Sessions that work at once (${default})."`
	Seed      uint64 `placeholder:"N" help:"Repeat a run's random choices; 0 takes the clock."`
	Dir       string `placeholder:"DIR" help:"Where the data directory is made: put it on the disk in question."`
}

// Help is shown below the one-line description.
func (*tortureCmd) Help() string {
	return `Runs sessions whose tools each write a file with a unique line, and kills the server and the boxes with SIGKILL at random moments and at named points of a turn. Then checks that everything acknowledged is stored, every turn ended once, no line stands twice, and that no process, mount, cgroup or socket is left. It starts a server of its own and touches no other.

With --faults (root only) the data directory lies on a disk image of its own, and the server and its boxes are killed and stopped, the disk is full and the power is cut. After a cut the disk has only what was written to the device, and after every second cut the machine has another boot id. Then checks that no acknowledged message is lost, each lost effect was told, nothing happened twice and nothing is left.

With --snapshots the sessions change files in turns and outside of them, rewind, lose their workspace and fork, and the server is killed at named points of a snapshot, a rewind and a restore, and at random moments. Then forks at every acknowledged checkpoint and compares the files with the hash that the turn itself printed, and the conversation. An interrupted rewind or restore must be complete, and the store must have no pack that the database does not know.`
}

// Run tortures and reports.
func (t *tortureCmd) Run(e *env) error {
	if t.Rounds < 1 || t.Sessions < 1 || t.Faults < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "torture", "--rounds %d and --sessions %d must be at least 1, --faults %d at least 0", t.Rounds, t.Sessions, t.Faults).
			WithHint("holdfast torture --rounds 20")
	}
	if t.Snapshots && t.Faults > 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "torture", "--snapshots and --faults are two kinds of runs").WithHint("holdfast torture --snapshots --rounds 21")
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
	cfg := torture.Config{Binary: s.binary, Env: s.env, Dir: s.dir, Faults: t.Rounds, Sessions: t.Sessions, Seed: seed, Out: e.stdout}
	if t.Snapshots {
		cfg.Snapshots, cfg.Strays = true, app.Strays
	}
	if t.Faults > 0 {
		cfg.Disk, cfg.Faults = true, t.Faults
	}
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

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
	Faults    int    `placeholder:"N" xor:"mode" help:"As root: N faults of every kind instead of kills alone. Power cuts, full disks, stopped and killed servers and boxes; 300 are a full run."`
	Snapshots bool   `xor:"mode" help:"Kill the server while it takes and restores snapshots, and compare every checkpoint."`
	Workspace bool   `xor:"mode" help:"Kill the server and boxd in turns while sessions share a workspace and its box."`
	Sessions  *int   `placeholder:"N" help:"Sessions that work at once (6, with --workspace 3)."`
	Seed      uint64 `placeholder:"N" help:"Repeat a run's random choices; 0 takes the clock."`
	Dir       string `placeholder:"DIR" help:"Where the data directory is made: put it on the disk in question."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*tortureCmd) Help() string {
	return `Runs sessions whose tools each write a file with a unique line, and kills the server and the boxes with SIGKILL at random moments and at named points of a turn. Then checks that everything acknowledged is stored, every turn ended once, no line stands twice, and that no process, mount, cgroup or socket is left. It starts a server of its own and touches no other.

With --faults (root only) the data directory lies on a disk image of its own, and the server and its boxes are killed and stopped, the disk is full and the power is cut. After a cut the disk has only what was written to the device, and after every second cut the machine has another boot id. Then checks that no acknowledged message is lost, each lost effect was told, nothing happened twice and nothing is left.

With --snapshots the sessions change files in turns and outside of them, rewind, lose their workspace and fork, and the server is killed at named points of a snapshot, a rewind and a restore, and at random moments. Then forks at every acknowledged checkpoint and compares the files with the hash that the turn itself printed, and the conversation. An interrupted rewind or restore must be complete, and the store must have no pack that the database does not know.

With --workspace the sessions work in one workspace and share its box. Commands append to a file that all of them have and to one in the session's home, and some outlast those of the others. The server and the box's boxd are killed in turns, both at each named point of a turn of one session, whatever the others do. Then checks for each session the same as above, that no command began twice and no outcome is that of another session, that each home has only what its own session wrote, and that the conversation is complete.`
}

// Run kills servers and boxes under load, and reports what was lost.
func (t *tortureCmd) Run(e *env) error {
	sessions := 6
	if t.Workspace {
		sessions = 3
	}
	if t.Sessions != nil {
		sessions = *t.Sessions
	}
	if t.Rounds < 1 || sessions < 1 || t.Faults < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "torture", "--rounds %d and --sessions %d must be at least 1, --faults %d at least 0", t.Rounds, sessions, t.Faults).
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
	cfg := torture.Config{Binary: s.binary, Env: s.env, Dir: s.dir, Faults: t.Rounds, Sessions: sessions, Workspace: t.Workspace, Seed: seed, Out: e.stdout}
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
	return e.printReport(res)
}

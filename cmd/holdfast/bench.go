package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/bench"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
)

type benchCmd struct {
	Runs    int           `default:"3" placeholder:"N" help:"Consecutive runs; the verdict is the worst of them (${default})."`
	Dir     string        `placeholder:"DIR" help:"Where the data directories are made: put it on the disk in question."`
	Runtime string        `placeholder:"claude" enum:",claude" default:"" help:"Measure sessions of this runtime instead, beside its agent alone."`
	Only    []string      `placeholder:"PART" enum:"${bench_parts}" help:"Measure these parts: ${enum}. The store is always measured."`
	Soak    time.Duration `placeholder:"TIME" help:"Instead, let sessions come, work and go for this long, once, and check that the server does not grow. The first sixth is warm-up."`
	Beside  string        `placeholder:"FILE" help:"Compare this program with another build of it, FILE, and measure nothing else."`
	Raw     string        `placeholder:"FILE" help:"Write every sample as JSON."`
	Data    string        `placeholder:"DIR" help:"Where the agent's CLI is installed; HOLDFAST_HOME, else $XDG_DATA_HOME/holdfast, else ~/.holdfast."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*benchCmd) Help() string {
	return `Starts servers of its own and measures them, and the store and the boxes below, against the promised limits. One run takes about a minute and a half. Ends with 1 if a limit does not hold.

As root, snapshots are measured on a fresh ext4 file system in a file of 6 GiB in the directory, which is removed at the end; else, or without that much room, in the directory itself, and the rows say so.

With --soak it samples one server whenever all of 50 sessions rest: live heap after a forced collection, resident set, descriptors, goroutines.`
}

// Run measures what the flags ask for, and prints the report.
func (b *benchCmd) Run(e *env) error {
	if b.Runs < 1 || b.Soak < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "bench", "--runs %d must be at least 1, --soak %s at least 0", b.Runs, b.Soak).WithHint("holdfast bench --runs 1")
	}
	if b.Soak > 0 {
		b.Runs = 1
	}
	cfg := bench.Config{Only: b.Only, Runs: b.Runs, Soak: b.Soak, Beside: b.Beside, Version: programVersion(), Progress: e.stderr, Clock: time.Now}
	if b.Runtime != "" {
		store, dir, err := runtimeDir{Data: b.Data}.store(e)
		if err != nil {
			return err
		}
		in, err := store.Find(b.Runtime)
		if err != nil {
			return err
		}
		cfg.Claude, _ = in.At(dir)
		cfg.Runtimes = dir
	}
	lifecycle.CalmMonitor()
	s, err := newSubject(b.Dir)
	if err != nil {
		return err
	}
	defer e.endWithReader()()
	cfg.Binary, cfg.Env, cfg.Dir = s.binary, s.env, s.dir
	rep, err := bench.Measure(e.ctx, cfg)
	s.remove(e, err != nil)
	if err != nil {
		return err
	}
	if b.Raw != "" {
		raw, err := json.Marshal(rep)
		if err == nil {
			err = os.WriteFile(b.Raw, raw, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return e.printReport(rep)
}

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
)

// restoreRounds is how many times each way to get a tree back is measured.
const restoreRounds = 7

// way is a way to get a tree back onto the disk.
type way struct {
	name string
	// run returns how many milliseconds it takes until the tree is durable: in the new directory to or, for a resume, in
	// the workspace of the session.
	run func(ctx context.Context, to string) (float64, error)
	Figure
}

// restores measures a resume that restores all files, in alternation with cp -a and with zstd | tar of the same
// tree, each with a sync. The files that one way wrote are removed before the next way is measured. The first
// round does not count; it only brings everything into memory.
func (m *measured) restores(ctx context.Context) error {
	workspace := filepath.Join(m.s.data, "sessions", string(m.id), "workspace")
	kept, packed := filepath.Join(m.dir, "kept"), filepath.Join(m.dir, "kept.tar.zst")
	if err := said(exec.CommandContext(ctx, "cp", "-a", workspace, kept)); err != nil {
		return err
	}
	ways := []*way{
		{name: "restore", run: func(ctx context.Context, _ string) (float64, error) { return m.restore(ctx, workspace) }},
		{name: "cp -a", run: timed(`cp -a "$0" "$1" && sync -f "$1"`, kept)},
		{name: "zstd | tar", run: timed(`mkdir "$1" && zstd -dqc "$0" | tar -C "$1" -xf - && sync -f "$1"`, packed)},
	}
	for _, w := range ways {
		w.Figure = Figure{Name: "20,000 files, 100 MB: " + w.name + ", durable", Unit: "ms", Judge: "p50"}
	}
	if err := said(exec.CommandContext(ctx, "sh", "-c", `tar -C "$0" -cf - . | zstd -q -o "$1"`, kept, packed)); err != nil {
		ways[2].Missing = "tar | zstd: " + err.Error()
	}
	for round := range 1 + restoreRounds {
		for _, w := range ways {
			if w.Missing != "" {
				continue
			}
			to := filepath.Join(m.dir, "again")
			took, err := w.run(ctx, to)
			if err == nil {
				err = os.RemoveAll(to)
			}
			if err == nil {
				err = said(exec.CommandContext(ctx, "sync", "-f", m.dir))
			}
			if err != nil {
				return err
			}
			if round > 0 {
				w.Samples = append(w.Samples, took)
			}
		}
	}
	if err := said(exec.CommandContext(ctx, "sh", "-c", `! diff -rq "$0" "$1" 2>&1 | grep -m 3 .`, kept, workspace)); err != nil {
		return err
	}
	for _, w := range ways {
		m.add(w.Figure)
	}
	m.add(ratio(ways[0].Figure, ways[1].Figure, Figure{Name: "the same restore, of cp -a", Gate: 1.5, Rule: "1.5 × cp -a"}))
	m.add(ratio(ways[0].Figure, ways[2].Figure, Figure{Name: "the same restore, of zstd | tar"}))
	return nil
}

// ratio fills a figure with the ratios of the samples of two other figures, whose samples were measured in pairs.
func ratio(f, of, to Figure) Figure {
	to.Unit, to.Judge, to.Missing = "×", "p50", of.Missing
	for i, v := range of.Samples {
		to.Samples = append(to.Samples, f.Samples[i]/v)
	}
	return to
}

// timed returns a function that runs a script of sh with two arguments: from, and the new directory.
func timed(script, from string) func(ctx context.Context, to string) (float64, error) {
	return func(ctx context.Context, to string) (float64, error) {
		return once(func() error { return said(exec.CommandContext(ctx, "sh", "-c", script, from, to)) })
	}
}

// restore removes the workspace of the session while no server runs, since a snapshot that follows the pause
// would see half of it. Then it measures the resume, which restores it.
func (m *measured) restore(ctx context.Context, workspace string) (float64, error) {
	if _, err := m.s.PauseSession(ctx, m.id, holdfast.EndSession{}); err != nil {
		return 0, err
	}
	m.s.stop()
	if err := os.RemoveAll(workspace); err != nil {
		return 0, err
	}
	if err := said(exec.CommandContext(ctx, "sync", "-f", m.dir)); err != nil {
		return 0, err
	}
	var err error
	if m.s, err = m.serve(ctx, filepath.Base(m.s.data)); err != nil {
		return 0, err
	}
	var r holdfast.Resumed
	took, err := once(func() (err error) {
		r, err = m.s.ResumeSession(ctx, m.id, holdfast.ResumeSession{})
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case r.Receipt == nil || r.Receipt.Files != holdfast.FilesRestored:
		return 0, fmt.Errorf("a resume that should restore the files gave the receipt %+v", r.Receipt)
	}
	return took, nil
}

package escape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast/internal/boxd/wire"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Races: while the server works in a tree, a program exchanges a directory in it
// and a symlink that leads out, as fast as it can. Each host-side operation is
// repeated so often that the naive one was seen to fall for it.

func raceAttempts() []attempt {
	return []attempt{
		{id: "race-read", does: "read through a directory that turns into a symlink, by the file operations", do: raceRead},
		{id: "race-write", does: "write through it, by the file operations", do: raceWrite},
		{id: "race-usage", does: "measure a tree with it (rooted.DiskUsage)", do: raceUsage},
		{id: "race-seed", does: "seed a workspace with it (rooted.Seed)", do: raceSeed},
		{id: "race-remove", does: "remove a tree with it (rooted.RemoveAll)", do: raceRemove},
	}
}

// most bounds how often a naive operation is repeated until it falls.
const most = 200_000

// swapped lays out dir/d with an own file and dir/l, a symlink to out, and lets
// them change places until the function it returns is called.
func (r *rig) swapped(dir, out string) (end func()) {
	r.Helper()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d", "secret"), []byte("own"), 0o644),
		os.MkdirAll(out, 0o755), os.WriteFile(filepath.Join(out, "secret"), bytes.Repeat([]byte(canary+"out "), 1<<16), 0o644),
		os.Symlink(out, filepath.Join(dir, "l")),
	} {
		if err != nil {
			r.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	cmd := exec.CommandContext(ctx, r.cfg.Probe, "swap", filepath.Join(dir, "d"), filepath.Join(dir, "l"))
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	return func() { cancel(); _ = cmd.Wait() }
}

// repeat calls fn until it reports a fall, at most n times, and says when.
func repeat(n int, fn func() bool) (times int, fell bool) {
	until := time.Now().Add(20 * time.Second)
	for i := range n {
		if fn() {
			return i + 1, true
		}
		if time.Now().After(until) {
			return i + 1, false
		}
	}
	return n, false
}

// verdict is the row of a race.
func (r *rig) verdict(n int, what string, fell bool, naive string, tries int, naiveFell bool) Row {
	r.Helper()
	row := Row{Verdict: Held, Saw: fmt.Sprintf("%d times, never outside", n), Control: naive + ": outside"}
	if fell {
		row.Verdict = Escaped
		r.Errorf("%s: outside after %d times", what, n)
	}
	if !naiveFell {
		r.Errorf("the control fails: %s was never outside in %d times", naive, tries)
	}
	return row
}

// inBoxSwap is swapped by a tool, in the attacker's workspace.
func (r *rig) inBoxSwap() (end func()) {
	r.Helper()
	if saw := r.exec(r.box, wire.ExecRequest{Shell: r.fill("rm -rf d l; mkdir d && echo own > d/secret && ln -s $(dirname {other}) l")}); saw != "exit 0" {
		r.Fatal(saw)
	}
	call := r.call()
	done := make(chan struct{})
	started := make(chan struct{}, 1)
	go func() {
		defer close(done)
		_, _ = r.box.Exec(r.Context(), call, wire.ExecRequest{Argv: []string{"/workspace/probe", "swap", "/workspace/d", "/workspace/l"}}, sandbox.ExecOptions{Started: func(wire.Started) { started <- struct{}{} }})
	}()
	<-started
	return func() {
		if err := r.box.Kill(r.Context(), wire.KillRequest{Call: call.ID}); err != nil {
			r.Error(err)
		}
		<-done
	}
}

func raceRead(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	const n = 1500
	seen := map[string]int{}
	times, fell := repeat(n, func() bool {
		got := r.readFile("d/secret")
		seen[got]++
		return bytes.Contains([]byte(got), []byte(canary))
	})
	if seen["ok own\n"] == 0 || len(seen) < 2 {
		r.Errorf("nothing raced: %v", seen)
	}
	path := filepath.Join(workspace(r.spec), "d", "secret")
	tries, naive := repeat(most, func() bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Contains(b, []byte(canary))
	})
	return r.verdict(times, "read", fell, "os.ReadFile", tries, naive)
}

func raceWrite(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	outside := filepath.Join(filepath.Dir(r.names["other"]), "planted")
	times, fell := repeat(500, func() bool {
		_, _ = r.box.Write(r.Context(), r.call(), wire.WriteRequest{Path: "d/planted"}, []byte("x"))
		_, err := os.Lstat(outside)
		return err == nil
	})
	path := filepath.Join(workspace(r.spec), "d", "planted")
	tries, naive := repeat(most, func() bool {
		_ = os.WriteFile(path, []byte("x"), 0o644)
		_, err := os.Lstat(outside)
		return err == nil
	})
	_ = os.Remove(outside)
	return r.verdict(times, "write", fell, "os.WriteFile", tries, naive)
}

func raceUsage(r *rig) Row {
	r.Helper()
	dir, out := filepath.Join(r.cfg.Outside, "race-usage"), filepath.Join(r.cfg.Outside, "race-usage-out")
	defer r.swapped(dir, out)()
	times, fell := repeat(500, func() bool {
		u, err := rooted.DiskUsage(r.Context(), dir, 0)
		return err == nil && u.Bytes > 512<<10
	})
	tries, naive := repeat(most, func() bool {
		st, err := os.Stat(filepath.Join(dir, "d", "secret"))
		return err == nil && st.Size() > 512<<10
	})
	return r.verdict(times, "usage", fell, "os.Stat", tries, naive)
}

func raceSeed(r *rig) Row {
	r.Helper()
	dir, out := filepath.Join(r.cfg.Outside, "race-seed"), filepath.Join(r.cfg.Outside, "race-seed-out")
	defer r.swapped(dir, out)()
	planted := filepath.Join(out, "planted")
	times, fell := repeat(200, func() bool {
		_ = rooted.Seed(dir, []rooted.File{{Path: "d/planted", Mode: 0o644, Content: []byte("x")}}, os.Getuid(), os.Getgid())
		_, err := os.Lstat(planted)
		_ = os.Remove(filepath.Join(dir, "d", "planted"))
		return err == nil
	})
	_ = os.Remove(planted)
	tries, naive := repeat(most, func() bool {
		_ = os.WriteFile(filepath.Join(dir, "d", "planted"), []byte("x"), 0o644)
		_, err := os.Lstat(planted)
		return err == nil
	})
	return r.verdict(times, "seed", fell, "os.WriteFile", tries, naive)
}

func raceRemove(r *rig) Row {
	r.Helper()
	n := 0
	// Each time another tree: it is gone afterwards. The naive server lists a
	// directory and removes what it saw by its path.
	once := func(remove func(string) error) (fell bool) {
		n++
		dir, out := filepath.Join(r.cfg.Outside, fmt.Sprint("race-remove-", n)), filepath.Join(r.cfg.Outside, fmt.Sprint("race-remove-out-", n))
		end := r.swapped(dir, out)
		for range 50 {
			if err := remove(dir); err == nil {
				break
			}
		}
		end()
		_, err := os.Lstat(filepath.Join(out, "secret"))
		_ = os.RemoveAll(dir)
		_ = os.RemoveAll(out)
		return errors.Is(err, os.ErrNotExist)
	}
	times, fell := repeat(12, func() bool { return once(rooted.RemoveAll) })
	tries, naive := repeat(10_000, func() bool {
		return once(func(dir string) error { return os.Remove(filepath.Join(dir, "d", "secret")) })
	})
	return r.verdict(times, "remove", fell, "os.Remove of a path", tries, naive)
}

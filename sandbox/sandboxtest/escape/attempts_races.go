package escape

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Races: while the server works in a tree, a program swaps a directory in the tree with a symlink
// that leads out of it, as fast as it can. As the control, a naive operation is repeated until it
// follows the symlink; the server's own operation is then repeated many times as often.

func raceAttempts() []attempt {
	return []attempt{
		{id: "race-read", does: "read through a directory that turns into a symlink, by the file operations", do: raceRead},
		{id: "race-write", does: "write through it, by the file operations", do: raceWrite},
		{id: "race-list", does: "list it, by the file operations", do: raceList},
		{id: "race-remove-op", does: "remove a file through it, by the file operations", do: raceRemoveOp},
		{id: "race-pack", does: "copy a tree with it out", do: racePack},
		{id: "race-unpack", does: "copy an archive into it", do: raceUnpack},
		{id: "race-settings", does: "read settings of a workspace through it (rooted.Tree)", do: raceSettings},
		{id: "race-usage", does: "measure a tree with it (rooted.DiskUsage)", do: raceUsage},
		{id: "race-seed", does: "seed a workspace with it (rooted.Seed)", do: raceSeed},
		{id: "race-remove", does: "remove a tree with it (rooted.RemoveAll)", do: raceRemove},
	}
}

// most and patience limit how often and for how long an operation is repeated. On a busy machine,
// after enough time it is repeated only as often as the proof needs.
const (
	most     = 200_000
	enough   = 20 * time.Second
	patience = time.Minute
)

// swapped creates the directory dir/d with a file and dir/l, a symlink to out, and swaps them
// continuously until the returned function is called.
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
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 64)); err != nil { // the program prints a line when it begins
		r.Fatal(err)
	}
	r.turns(filepath.Join(dir, "d"))
	return func() { cancel(); _ = cmd.Wait() }
}

// turns waits until dir was seen both as a directory and as a symlink, so the swapping has begun.
// On a busy machine a new program may get no processor for a while; a control that runs meanwhile
// would count tries in which nothing could happen.
func (r *rig) turns(dir string) {
	r.Helper()
	var link, plain bool
	if _, both := repeat(math.MaxInt, func() bool {
		fi, err := os.Lstat(dir)
		isLink := err == nil && fi.Mode()&os.ModeSymlink != 0
		link, plain = link || isLink, plain || err == nil && !isLink
		return link && plain
	}); !both {
		r.Fatalf("%s does not change places", dir)
	}
}

// repeat calls fn until fn reports that it was tricked, at most n times and not longer than patience. It returns the
// number of calls, and whether fn was tricked (fell).
func repeat(n int, fn func() bool) (times int, fell bool) {
	until := time.Now().Add(patience)
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

// race repeats the naive operation until it leaves the tree, and then the real operation: ten times as often, at least
// least times, and until it had different outcomes, because otherwise no swap happened during it.
func (r *rig) race(least int, naive string, careless func() bool, careful func() (outcome string, outside bool)) Row {
	r.Helper()
	tries, fell := repeat(most, careless)
	if !fell {
		r.Errorf("the control failed: %s did not leave the tree in %d tries", naive, tries)
	}
	n, times, seen, outside := max(least, 10*tries), 0, map[string]int{}, false
	for began := time.Now(); !outside; times++ {
		took, raced := time.Since(began), len(seen) > 1
		if raced && (times >= n || took > enough && times >= tries) || took > patience {
			break
		}
		var outcome string
		outcome, outside = careful()
		seen[outcome]++
	}
	row := Row{Verdict: Held, Saw: fmt.Sprintf("%d times, never outside", times), Control: fmt.Sprintf("%s: outside at try %d", naive, tries)}
	switch {
	case outside:
		row.Verdict = Escaped
		r.Errorf("the operation left the tree after %d tries", times)
	case times < tries || len(seen) < 2:
		r.Errorf("%d tries of the operation prove nothing: they are fewer than the %d tries of the control, or all had one outcome: %v", times, tries, seen)
	}
	return row
}

// inBoxSwap is like swapped, with the swapping done by a tool in the attacker's workspace.
func (r *rig) inBoxSwap() (end func()) {
	r.Helper()
	if saw := r.exec(r.box, wire.ExecRequest{Shell: r.fill("rm -rf d l; mkdir d && echo own > d/secret && ln -s $(dirname {other}) l")}); saw != "exit 0" {
		r.Fatal(saw)
	}
	call := r.call()
	done := make(chan struct{})
	said, says := io.Pipe()
	go func() {
		defer close(done)
		_, err := r.box.Exec(r.Context(), call, wire.ExecRequest{Argv: []string{"/workspace/probe", "swap", "/workspace/d", "/workspace/l"}}, sandbox.ExecOptions{Stdout: says})
		_ = says.CloseWithError(err)
	}()
	if _, err := said.Read(make([]byte, 64)); err != nil { // the program prints a line when it begins
		r.Fatal(err)
	}
	r.turns(filepath.Join(workspace(r.spec), "d"))
	return func() {
		if err := r.box.Kill(r.Context(), wire.KillRequest{Call: call.ID}); err != nil {
			r.Error(err)
		}
		<-done
	}
}

// kindOf returns the Kind of an error as text.
func kindOf(err error) string { return string(holdfast.KindOf(err)) }

func raceRead(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	path := filepath.Join(workspace(r.spec), "d", "secret")
	return r.race(1500, "os.ReadFile", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Contains(b, []byte(canary))
	}, func() (string, bool) {
		got := r.readFile("d/secret")
		return got, strings.Contains(got, canary)
	})
}

func raceWrite(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	path, outside := filepath.Join(workspace(r.spec), "d", "planted"), filepath.Join(filepath.Dir(r.names["other"]), "planted")
	return r.race(500, "os.WriteFile", func() bool {
		_ = os.WriteFile(path, []byte("x"), 0o644)
		return os.Remove(outside) == nil
	}, func() (string, bool) {
		write := r.call()
		defer r.box.Release(write.ID) // release the call, because a box holds a limited number of calls
		_, err := r.box.Write(r.Context(), write, wire.WriteRequest{Path: "d/planted"}, []byte("x"))
		return kindOf(err), os.Remove(outside) == nil
	})
}

func raceList(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	path := filepath.Join(workspace(r.spec), "d")
	// The other session's workspace has a file named probe, the directory d of this box has none.
	return r.race(1500, "os.ReadDir", func() bool {
		list, err := os.ReadDir(path)
		return err == nil && slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == "probe" })
	}, func() (string, bool) {
		list, err := r.box.List(r.Context(), wire.ListRequest{Path: "d"})
		return kindOf(err), slices.ContainsFunc(list.Entries, func(e wire.FileInfo) bool { return filepath.Base(e.Path) == "probe" })
	})
}

func raceRemoveOp(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	path, outside := filepath.Join(workspace(r.spec), "d", "doomed"), filepath.Join(filepath.Dir(r.names["other"]), "doomed")
	gone := func() bool {
		_, err := os.Lstat(outside)
		return errors.Is(err, os.ErrNotExist)
	}
	r.file(outside, "x")
	defer os.Remove(outside)
	return r.race(500, "os.Remove", func() bool {
		_ = os.Remove(path)
		if !gone() {
			return false
		}
		r.file(outside, "x")
		return true
	}, func() (string, bool) {
		write, remove := r.call(), r.call()
		defer r.box.Release(write.ID, remove.ID)
		_, _ = r.box.Write(r.Context(), write, wire.WriteRequest{Path: "d/doomed"}, []byte("x"))
		err := r.box.Remove(r.Context(), remove, wire.RemoveRequest{Path: "d/doomed"})
		return kindOf(err), gone()
	})
}

func racePack(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	path := filepath.Join(workspace(r.spec), "d", "secret")
	return r.race(300, "os.ReadFile", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Contains(b, []byte(canary))
	}, func() (string, bool) {
		var got bytes.Buffer
		sum, err := r.box.Pack(r.Context(), wire.PackRequest{Path: "d"}, &got)
		return fmt.Sprint(kindOf(err), sum.Files, len(sum.Incomplete)), bytes.Contains(got.Bytes(), []byte(canary))
	})
}

func raceUnpack(r *rig) Row {
	r.Helper()
	defer r.inBoxSwap()()
	path, outside := filepath.Join(workspace(r.spec), "d", "planted"), filepath.Join(filepath.Dir(r.names["other"]), "planted")
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "planted", Mode: 0o644}), w.Close()); err != nil {
		r.Fatal(err)
	}
	return r.race(300, "os.WriteFile", func() bool {
		_ = os.WriteFile(path, []byte("x"), 0o644)
		return os.Remove(outside) == nil
	}, func() (string, bool) {
		_, err := r.box.Unpack(r.Context(), wire.UnpackRequest{Path: "d"}, bytes.NewReader(archive.Bytes()))
		return kindOf(err), os.Remove(outside) == nil
	})
}

func raceSettings(r *rig) Row {
	r.Helper()
	dir, out := filepath.Join(r.cfg.Outside, "race-settings"), filepath.Join(r.cfg.Outside, "race-settings-out")
	defer r.swapped(dir, out)()
	outside, err := rooted.Tree(out).Stat(r.Context(), "secret")
	if err != nil {
		r.Fatal(err)
	}
	return r.race(5000, "os.ReadFile", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "d", "secret"))
		return err == nil && bytes.Contains(b, []byte(canary))
	}, func() (string, bool) {
		st, err := rooted.Tree(dir).Stat(r.Context(), "d/secret")
		b, _, rerr := rooted.Tree(dir).ReadFile(r.Context(), "d/secret", 4<<20)
		return kindOf(err) + kindOf(rerr), st == outside || bytes.Contains(b, []byte(canary))
	})
}

func raceUsage(r *rig) Row {
	r.Helper()
	dir, out := filepath.Join(r.cfg.Outside, "race-usage"), filepath.Join(r.cfg.Outside, "race-usage-out")
	defer r.swapped(dir, out)()
	return r.race(500, "os.Stat", func() bool {
		st, err := os.Stat(filepath.Join(dir, "d", "secret"))
		return err == nil && st.Size() > 512<<10
	}, func() (string, bool) {
		u, err := rooted.DiskUsage(r.Context(), dir, 0)
		return fmt.Sprint(u, err), u.Bytes > 512<<10
	})
}

func raceSeed(r *rig) Row {
	r.Helper()
	dir, out := filepath.Join(r.cfg.Outside, "race-seed"), filepath.Join(r.cfg.Outside, "race-seed-out")
	defer r.swapped(dir, out)()
	planted := filepath.Join(out, "planted")
	return r.race(500, "os.WriteFile", func() bool {
		_ = os.WriteFile(filepath.Join(dir, "d", "planted"), []byte("x"), 0o644)
		return os.Remove(planted) == nil
	}, func() (string, bool) {
		kept, serr := rooted.Seed(dir, []rooted.File{{Path: "d/planted", Mode: 0o644, Content: []byte("x")}}, os.Getuid(), os.Getgid())
		_, err := os.Lstat(planted)
		_ = os.Remove(filepath.Join(dir, "d", "planted"))
		if len(kept) > 0 {
			return string(holdfast.KindConflict), err == nil
		}
		return kindOf(serr), err == nil
	})
}

func raceRemove(r *rig) Row {
	r.Helper()
	n := 0
	// Each repetition uses a new tree, because the operation removes it. The naive server lists
	// a directory and removes the entries by their paths.
	once := func(remove func(string) error) (outcome string, outside bool) {
		n++
		dir, out := filepath.Join(r.cfg.Outside, fmt.Sprint("race-remove-", n)), filepath.Join(r.cfg.Outside, fmt.Sprint("race-remove-out-", n))
		end := r.swapped(dir, out)
		for range 50 {
			err := remove(dir)
			if outcome += kindOf(err) + ";"; err == nil {
				break
			}
		}
		end()
		_, err := os.Lstat(filepath.Join(out, "secret"))
		_ = os.RemoveAll(dir)
		_ = os.RemoveAll(out)
		return outcome, errors.Is(err, os.ErrNotExist)
	}
	return r.race(400, "os.Remove of a path", func() bool {
		_, outside := once(func(dir string) error { return os.Remove(filepath.Join(dir, "d", "secret")) })
		return outside
	}, func() (string, bool) { return once(rooted.RemoveAll) })
}

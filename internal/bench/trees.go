package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/holdfast-run/holdfast"
)

// The tree that is copied: 10,000 files, 100 MB.
const (
	treeFiles = 10_000
	treeBytes = 10_000
	treeDirs  = 200
)

// trees measures copies of a tree into a box and out of it with holdfast cp, in alternation with
// tar | tar and a sync on the same disk, and how much memory server and boxd need for that.
func (p *pass) trees(ctx context.Context) error {
	from := filepath.Join(p.dir, "tree")
	if err := makeTree(from); err != nil {
		return err
	}
	s, id, err := p.session(ctx, "trees")
	if err != nil {
		return err
	}
	defer s.stop()
	if _, err := s.Exec(ctx, id, holdfast.ExecRequest{Argv: []string{"true"}}); err != nil {
		return err
	}
	boxes, err := s.boxes(ctx)
	if err != nil {
		return err
	}
	pids := map[string]int{"server": s.PID, "boxd": boxes[id.Box()]}
	cp := func(from, to string) error { return s.cp(ctx, p.cfg.Binary, from, to) }
	pipe := func(n int) error {
		to := filepath.Join(p.dir, fmt.Sprintf("tar%d", n))
		return said(exec.CommandContext(ctx, "sh", "-c", `mkdir "$1" && tar c -C "$0" . | tar x -C "$1" && sync -f "$1"`, from, to))
	}
	// Copy once before measuring: loading the code for copying counts as memory, too.
	if err := errors.Join(cp(filepath.Join(from, "0"), string(id)+":first"), cp(string(id)+":first", filepath.Join(p.dir, "first"))); err != nil {
		return err
	}
	const runs = 5
	in := Figure{Name: "10,000 files, 100 MB into a box: cp, of tar | tar", Unit: "×", Judge: "p50", Gate: 2, Rule: "2 × tar | tar"}
	out := Figure{Name: "10,000 files, 100 MB out of a box: cp, of tar | tar", Unit: "×", Judge: "p50", Gate: 2, Rule: "2 × tar | tar"}
	memory := map[string]*Figure{}
	for who := range pids {
		memory[who] = &Figure{Name: "memory of " + who + " more while trees are copied", Unit: "MiB", Judge: "size", Gate: 16, Rule: "16 MiB"}
	}
	before := map[string]float64{}
	for who, pid := range pids {
		before[who] = memoryOf(pid, "VmRSS:")
		// Reset the kernel's record of the peak; if that is not allowed, the peak is too high.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
	for n := range runs {
		box := fmt.Sprintf("%s:copy%d", id, n)
		for _, way := range []struct {
			f        *Figure
			from, to string
		}{{&in, from, box}, {&out, box, filepath.Join(p.dir, fmt.Sprintf("out%d", n))}} {
			tar, err := times(1, func(int) error { return pipe(len(in.Samples) + 100*len(out.Samples)) })
			if err != nil {
				return err
			}
			took, err := times(1, func(int) error { return cp(way.from, way.to) })
			if err != nil {
				return err
			}
			way.f.Samples = append(way.f.Samples, took[0]/tar[0])
		}
	}
	p.add(in)
	p.add(out)
	for who, f := range memory {
		f.Samples = []float64{memoryOf(pids[who], "VmHWM:") - before[who]}
		p.add(*f)
	}
	return nil
}

func makeTree(dir string) error {
	data := make([]byte, treeBytes)
	for n := range treeFiles {
		sub := filepath.Join(dir, strconv.Itoa(n%treeDirs))
		for i := range data {
			data[i] = byte(i * (n + 7) >> 3)
		}
		err := errors.Join(os.MkdirAll(sub, 0o755), os.WriteFile(filepath.Join(sub, strconv.Itoa(n)), data, 0o644))
		if err != nil {
			return err
		}
	}
	return nil
}

// cp copies a tree into a box of the server or out of it, with the program's cp.
func (s *subject) cp(ctx context.Context, binary, from, to string) error {
	cmd := exec.CommandContext(ctx, binary, "cp", "-r", from, to)
	cmd.Env = append(cmd.Environ(), "HOLDFAST_URL="+s.URL, "HOLDFAST_HOME="+s.data)
	return said(cmd)
}

// said runs a command. If it fails, the error includes the command's output.
func said(cmd *exec.Cmd) error {
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the command %q failed: %w: %s", cmd.Args, err, text)
	}
	return nil
}

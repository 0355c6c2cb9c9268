package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestOnFreshDisk: the measurement gets a directory of another file system, of which nothing is left, or the figures
// say where they are from.
func TestOnFreshDisk(t *testing.T) {
	var said bytes.Buffer
	p := &pass{dir: testkit.BaseDir(t), cfg: Config{Progress: &said}}
	broken := errors.New("broken")
	err := p.onFreshDisk(func(on *pass) error {
		on.add(Figure{Name: "row"})
		fresh := on.dir != p.dir
		if fresh == (on.where != "") || os.Geteuid() == 0 != fresh {
			t.Errorf("dir %s, where %q: %s", on.dir, on.where, said.String())
		}
		return broken
	})
	if !errors.Is(err, broken) || len(p.out) != 1 || !strings.HasPrefix(p.out[0].Name, "row") {
		t.Errorf("%v, %v", err, p.out)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "disk.img")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image is left: %v", err)
	}
}

// TestWithoutDiskImage: if there can be no image, the figures say that they are from the data directory.
func TestWithoutDiskImage(t *testing.T) {
	var said bytes.Buffer
	p := &pass{dir: testkit.BaseDir(t), cfg: Config{Progress: &said}}
	if err := os.WriteFile(filepath.Join(p.dir, "disk"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.onFreshDisk(func(on *pass) error { on.add(Figure{Name: "row"}); return nil }); err != nil {
		t.Fatal(err)
	}
	if p.out[0].Name != "row, in the data directory" || !strings.Contains(said.String(), "no fresh disk image") {
		t.Errorf("%q, %s", p.out[0].Name, said.String())
	}
}

// TestGateInCommits: the gate is some commits and some milliseconds, and so is the value.
func TestGateInCommits(t *testing.T) {
	f := Figure{Judge: "p50", Samples: []float64{2.5}}
	f.gateInCommits(2, 0.5, 1)
	if f.Gate != 2 || f.OK() || f.gate() != "≤ 2.00 (2 commits + 1 ms)" || f.Baseline != "value = 2 commits + 1.50 ms" {
		t.Errorf("%+v, %s", f, f.gate())
	}
}

func TestRatio(t *testing.T) {
	f := ratio(Figure{Samples: []float64{3, 8}}, Figure{Samples: []float64{2, 4}}, Figure{Name: "name", Gate: 1.5})
	if len(f.Samples) != 2 || f.Samples[0] != 1.5 || f.Samples[1] != 2 || f.Unit != "×" {
		t.Errorf("%+v", f)
	}
	if f := ratio(Figure{Samples: []float64{3}}, Figure{Missing: "no zstd"}, Figure{}); f.Missing != "no zstd" || f.OK() {
		t.Errorf("%+v", f)
	}
}

// TestProcessorTime: the time of a process grows while it works.
func TestProcessorTime(t *testing.T) {
	before := processorTime(os.Getpid())
	for began := time.Now(); processorTime(os.Getpid()) <= before; {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("it stays %v", before)
		}
	}
	if before <= 0 {
		t.Errorf("it began with %v", before)
	}
	if got := processorTime(1<<22 + 1); got != 0 {
		t.Errorf("of no process: %v", got)
	}
}

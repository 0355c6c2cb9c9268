package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/internal/torture"
)

// TestASH20_KilledInSnapshots: a server under load is killed at each point of its snapshots, at least twice. Every
// checkpoint that it acknowledged is there as it was, and nothing else is left.
func TestASH20_KilledInSnapshots(t *testing.T) {
	testkit.Long(t)
	binary, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	r, err := torture.Run(t.Context(), torture.Config{
		Binary: binary, Env: os.Environ(), Dir: testkit.BaseDir(t), Faults: 21, Sessions: 4,
		Snapshots: true, Strays: app.Strays, Seed: uint64(time.Now().UnixNano()), Out: io.Discard,
	})
	if err != nil || !r.OK() || r.Snapshots == nil || r.Snapshots.Compared == 0 {
		t.Errorf("%v: %+v, snapshots %+v", err, r, r.Snapshots)
	}
}

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

// TestASH20_KilledInSnapshots: a server under load is killed at the points of its snapshots. Every
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
	// On a busy machine a point may be reached less than twice: that is a shortfall, and no fault.
	if err != nil || len(r.Violations)+len(r.Leftovers)+r.Repairs > 0 || r.Snapshots == nil || r.Snapshots.Compared == 0 {
		t.Errorf("%v: %+v, snapshots %+v", err, r, r.Snapshots)
	}
}

package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/internal/torture"
)

// TestWSR51_KilledInAWorkspace: three sessions work in one workspace, and the server and the boxd of their box are
// killed in turns at each point of a turn. Nothing runs twice, no session loses an outcome to another one, and each
// has its whole history (HZ-22).
//
// WS-R51.
func TestWSR51_KilledInAWorkspace(t *testing.T) {
	testkit.Long(t)
	binary, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := torture.Run(t.Context(), torture.Config{
		Binary: binary, Env: append(os.Environ(), "HOLDFAST_DEFAULT_MODEL=scripted"), Dir: testkit.BaseDir(t), Faults: 20, Sessions: 3,
		Workspace: true, Seed: uint64(time.Now().UnixNano()), Out: &out,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	// On a busy machine a point may be reached less than twice: that is a shortfall, and no fault.
	if len(r.Violations)+len(r.Leftovers)+r.Repairs > 0 || r.Workspace.Adopted == 0 {
		t.Error(out.String())
	}
	t.Log(out.String())
}

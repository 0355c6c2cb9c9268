package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestTheServerKeepsItsMemoryAndItsDirectory: a server with a data directory that
// others may list closes it, says so, writes no core file, and still runs boxes. It
// runs once as root and once as an ordinary user.
func TestTheServerKeepsItsMemoryAndItsDirectory(t *testing.T) {
	data := testkit.BaseDir(t)
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	p := launchOn(t, data, "local", holdfast.Untrusted)
	info, err := os.Stat(data)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if log := p.log.String(); !strings.Contains(log, "other users had access") || !strings.Contains(log, "rwxr-xr-x") {
		t.Errorf("the log does not say it: %s", log)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	core := ""
	for l := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(l, "Max core file size"); ok {
			core = strings.Join(strings.Fields(rest), " ")
		}
	}
	if core != "0 0 bytes" {
		t.Errorf("core files: %q", core)
	}
	ses, err := p.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Exec(t.Context(), ses.ID, holdfast.ExecRequest{Argv: []string{"sh", "-c", "echo in a box"}})
	if err != nil || string(res.Stdout) != "in a box\n" {
		t.Errorf("%+v %v", res, err)
	}
}

func TestTheServerOfAnOrdinaryUserKeepsThemToo(t *testing.T) {
	if _, ok := testkit.IsUser(); ok {
		t.Skip("already")
	}
	testkit.AsUser(t, "^TestTheServerKeepsItsMemoryAndItsDirectory$")
}

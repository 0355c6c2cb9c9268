package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestDoctorJudgesTheDriver: it ends with 1 where the next session's first tool
// would find no box.
//
// WS-R42.
func TestDoctorJudgesTheDriver(t *testing.T) {
	for name, c := range map[string]struct {
		trust, driver string
		code          int
		want          string
	}{
		"isolates":                 {"untrusted", "mem", 0, "driver mem: usable, the driver of untrusted sessions"},
		"isolates nothing":         {"untrusted", "host", 1, "are refused: the driver host does not isolate its boxes"},
		"isolates nothing, chosen": {"trusted", "host", 0, "driver host: usable, for trusted sessions only"},
	} {
		t.Run(name, func(t *testing.T) {
			vars := map[string]string{"HOLDFAST_HOME": t.TempDir(), "HOLDFAST_URL": "http://127.0.0.1:1"}
			code, out, errs := runCLI(t, vars, "", "doctor", "--driver", c.driver, "--set", "default_trust="+c.trust)
			if code != c.code || errs != "" || !strings.Contains(out, c.want) {
				t.Errorf("%d %s %s", code, out, errs)
			}
			lines := strings.Split(out, "\n")
			for i, l := range lines {
				if strings.HasPrefix(strings.ToLower(strings.TrimSpace(l)), "missing") && !strings.Contains(l+lines[i+1], "fix: ") {
					t.Errorf("no fix for %q", l)
				}
			}
		})
	}
}

// TestDoctorBesideAServer: the address of the server that answers is not taken by
// somebody else; --data looks at its data directory, with its token.
//
// FH-9.
func TestDoctorBesideAServer(t *testing.T) {
	vars := serveWith(t, "mem")
	listen := strings.TrimPrefix(vars["HOLDFAST_URL"], "http://")
	vars["HOLDFAST_LISTEN"] = listen
	code, out, errs := runCLI(t, vars, "", "doctor", "--driver", "mem")
	if code != 0 || errs != "" || !strings.Contains(out, listen+" is used by the running server") || strings.Contains(out, "in use") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	elsewhere := maps.Clone(vars)
	elsewhere["HOLDFAST_HOME"] = filepath.Join(testkit.BaseDir(t), "none")
	if _, out, _ := runCLI(t, elsewhere, "", "doctor", "--driver", "mem"); strings.Contains(out, "takes the token") {
		t.Errorf("without the token: %s", out)
	}
	code, out, errs = runCLI(t, elsewhere, "", "doctor", "--driver", "mem", "--data", vars["HOLDFAST_HOME"])
	for _, want := range []string{"takes the token", "data directory " + vars["HOLDFAST_HOME"], "holdfast.db "} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, no %q: %s %s", code, want, out, errs)
		}
	}
	if _, err := os.Stat(elsewhere["HOLDFAST_HOME"]); err == nil {
		t.Error("it made a data directory")
	}
}

// TestWSR69_SizesOfWorkspaces: doctor reports how much each workspace holds, also when no server runs.
func TestWSR69_SizesOfWorkspaces(t *testing.T) {
	vars := serveWith(t, "mem")
	for _, args := range []string{"workspace create empty", "workspace create site", "session create --workspace site --title one", "files put one big"} {
		if code, _, errs := runCLI(t, vars, strings.Repeat("x", 3<<20), strings.Fields(args)...); code != 0 {
			t.Fatalf("%s: %d %s", args, code, errs)
		}
	}
	for _, url := range []string{vars["HOLDFAST_URL"], "http://127.0.0.1:1"} {
		here := maps.Clone(vars)
		here["HOLDFAST_URL"] = url
		code, out, errs := runCLI(t, here, "", "doctor", "--driver", "mem", "--json")
		var found struct{ Sizes []checks.Size }
		if err := json.Unmarshal([]byte(out), &found); code != 0 || err != nil {
			t.Fatalf("%d %v %s", code, err, errs)
		}
		size := map[string]int64{}
		for _, s := range found.Sizes {
			size[s.Name] = s.Bytes
		}
		if n, ok := size["workspaces/empty"]; !ok || n > 1<<20 || size["workspaces/site"] < 3<<20 {
			t.Errorf("sizes %v", size)
		}
	}
}

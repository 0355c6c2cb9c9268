package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// vector is one row of the public corpus of sandbox checkers.
type vector struct {
	ID       string          `json:"id"`
	Settings json.RawMessage `json:"settings"`
	Kind     string          `json:"kind"`
	Op       string          `json:"op"`
	Input    string          `json:"input"`
	Allow    bool            `json:"allow"`
	Why      string          `json:"why"`
	Cwd      string          `json:"cwd"`
	Home     string          `json:"home"`
	Platform string          `json:"platform"`
	Setup    [][]string      `json:"setup"`
	// Gate: an issue demands the row.
	Gate bool `json:"gate"`
}

func vectors(t testing.TB) []vector { return vectorsOf(t, "sandbox-checker-cases.jsonl") }

func vectorsOf(t testing.TB, name string) []vector {
	b, err := os.ReadFile("../../testdata/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	for scan := bufio.NewScanner(bytes.NewReader(b)); scan.Scan(); {
		var v vector
		if err := json.Unmarshal(scan.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// prepare builds a row's files below a fresh root and puts that root for @T@.
func (v vector) prepare(t *testing.T) vector {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(s string) string { return strings.ReplaceAll(s, "@T@", root) }
	v.Settings, v.Input, v.Cwd, v.Home = []byte(at(string(v.Settings))), at(v.Input), at(v.Cwd), at(v.Home)
	for _, step := range v.Setup {
		name, err := at(step[1]), error(nil)
		switch step[0] {
		case "dir":
			err = os.MkdirAll(name, 0o755)
		case "file":
			err = os.WriteFile(name, []byte(step[2]), 0o644)
		case "exec":
			err = os.WriteFile(name, []byte(step[2]), 0o755)
		case "symlink":
			err = os.Symlink(at(step[2]), name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if v.Cwd == "" {
		v.Cwd = "/project"
	}
	return v
}

// TestVectors_SDK_K_L is the public corpus: every verdict, the agreement of both
// forms of the question, and a code and a reason with every denial.
func TestVectors_SDK_K_L(t *testing.T) {
	all := vectors(t)
	if len(all) != 227 {
		t.Errorf("%d rows, want 227", len(all))
	}
	for _, v := range all {
		t.Run(v.ID, v.judge)
	}
}

// TestVectors2_SDK_L9 is the second corpus, from a hostile review. 181 of its rows are
// a gate; the others are matters of judgement, and are tested too.
func TestVectors2_SDK_L9(t *testing.T) {
	gates := 0
	for _, v := range vectorsOf(t, "sandbox-checker-cases-2.jsonl") {
		if v.Gate {
			gates++
		}
		t.Run(v.ID, v.judge)
	}
	if gates != 181 {
		t.Errorf("%d rows with a gate, want 181", gates)
	}
}

// judge asks a checker about one row, in both forms of the question.
func (v vector) judge(t *testing.T) {
	if v.Platform != "" && v.Platform != runtime.GOOS {
		t.Skip("a row for " + v.Platform)
	}
	v = v.prepare(t)
	s, err := ParseSettings(v.Settings)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(s, Options{Cwd: v.Cwd, Home: v.Home, FS: Host{}})
	if err != nil {
		t.Fatal(err)
	}
	var got Verdict
	var asErr error
	switch {
	case v.Kind == "command":
		got, asErr = c.Command(v.Input), c.CheckCommand(v.Input)
	case v.Op == "write":
		got, asErr = c.Path(v.Input, Write), c.CheckPath(v.Input, Write)
	default:
		got, asErr = c.Path(v.Input, Read), c.CheckPath(v.Input, Read)
	}
	if got.Allowed != v.Allow {
		t.Errorf("%s %q with %s: %+v, want allow=%v (%s)", v.Kind, v.Input, v.Settings, got, v.Allow, v.Why)
	}
	if (asErr == nil) != got.Allowed {
		t.Errorf("the verdict is %v and the error %v", got.Allowed, asErr)
	}
	if !got.Allowed {
		var d *DeniedError
		if got.Code == "" || got.Reason == "" || !errors.As(asErr, &d) || !holdfast.IsKind(asErr, holdfast.KindDenied) {
			t.Errorf("a denial without code or reason: %+v, %v", got, asErr)
		}
	}
}

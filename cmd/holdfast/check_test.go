package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The public corpus again, through the command line: `holdfast check` ends with 0 or 1
// for every row of it (SDK-K, SDK-L), and for those that a hostile review added.
func TestCheckAnswersTheCorpus(t *testing.T) {
	for name, want := range map[string]int{"sandbox-checker-cases.jsonl": 227, "sandbox-checker-cases-2.jsonl": 236} {
		if rows := answerCorpus(t, name); rows != want {
			t.Errorf("%s: %d rows, want %d", name, rows, want)
		}
	}
}

// answerCorpus asks the command about every row of a file and gives their number.
func answerCorpus(t *testing.T, name string) (rows int) {
	b, err := os.ReadFile("../../testdata/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for scan := bufio.NewScanner(bytes.NewReader(b)); scan.Scan(); {
		var v struct {
			ID, Kind, Op, Input, Cwd, Home, Platform string
			Settings                                 json.RawMessage
			Allow                                    bool
			Setup                                    [][]string
		}
		if err := json.Unmarshal(scan.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		rows++
		if v.Platform != "" && v.Platform != runtime.GOOS {
			continue
		}
		root, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		at := func(s string) string { return strings.ReplaceAll(s, "@T@", root) }
		for _, step := range v.Setup {
			switch step[0] {
			case "dir":
				err = os.MkdirAll(at(step[1]), 0o755)
			case "symlink":
				err = os.Symlink(at(step[2]), at(step[1]))
			default:
				err = os.WriteFile(at(step[1]), []byte(step[2]), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		args := []string{"check", v.Kind, "--settings", "-", "--cwd", "/project"}
		if v.Cwd != "" {
			args[len(args)-1] = at(v.Cwd)
		}
		if v.Home != "" {
			args = append(args, "--home", at(v.Home))
		}
		if v.Op != "" {
			args = append(args, "--op", v.Op)
		}
		args = append(args, "--", at(v.Input))
		var out, errs bytes.Buffer
		code := run(context.Background(), args, func(string) string { return "" }, strings.NewReader(at(string(v.Settings))), &out, &errs)
		want := 1
		if v.Allow {
			want = 0
		}
		if code != want || !strings.HasPrefix(out.String(), map[int]string{0: "allowed\n", 1: "denied: "}[code]) {
			t.Errorf("%s %q: ended with %d, want %d: %s%s", v.ID, args, code, want, out.String(), errs.String())
		}
	}
	return rows
}

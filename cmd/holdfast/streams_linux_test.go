package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBrokenStreams: output that cannot be written is a failure that says so,
// a reader that left is none worth a word, and a stdin that is closed is empty.
//
// FH-53.
func TestBrokenStreams(t *testing.T) {
	vars := serveWith(t, "mem")
	code, id, errs := runCLI(t, vars, "", "session", "create")
	if code != 0 {
		t.Fatal(errs)
	}
	sh := func(script string) (int, string) {
		cmd := exec.Command("bash", "-c", script)
		cmd.Env = append(os.Environ(), "ID="+strings.TrimSpace(id))
		for k, v := range vars {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), stderr.String()
	}
	writers := []string{
		"version", "--help", "session --help", "man", "completion bash", "session list", "session list --json", "session show $ID",
		"agent show default", "doctor --driver mem", "send $ID hello", "session events $ID", "session transcript $ID",
		"exec $ID -- echo hello", "files ls $ID", "chat $ID <<< hello", "serve --driver mem --listen x",
	}
	for _, w := range writers {
		code, errs := sh("holdfast " + w + " >/dev/full")
		if code == 0 || !strings.Contains(errs, "no space left on device") && !strings.HasPrefix(w, "serve") || strings.Contains(errs, "goroutine") || len(errs) > 1000 {
			t.Errorf("%s >/dev/full: %d %s", w, code, errs)
		}
		// The reader is gone before anything is written.
		code, errs = sh("set -o pipefail; { exec 3>&1; (sleep 0 3>&-; holdfast " + w + "); } | true")
		if strings.Contains(errs, "goroutine") || strings.Contains(errs, "broken pipe") {
			t.Errorf("%s | true: %d %s", w, code, errs)
		}
	}
	for script, want := range map[string]string{
		"holdfast send $ID - <&-":                 "holdfast: ",
		"holdfast files put $ID a.txt <&-":        "",
		"holdfast exec -i $ID -- cat <&-":         "",
		"holdfast chat $ID <&-":                   "session ",
		"holdfast session list </dev/null 2>&-":   "",
		"holdfast session show zz 2>/dev/full":    "",
		"holdfast session list --url x 1>&- 2>&-": "",
	} {
		code, errs := sh(script)
		if strings.Contains(errs, "goroutine") || strings.Contains(errs, "panic") || !strings.Contains(errs, want) || code > 6 {
			t.Errorf("%s: %d %s", script, code, errs)
		}
	}
}

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parses reports a command line of the program that it would not take.
func parses(t *testing.T, what string, args []string) {
	t.Helper()
	parser, err := newParser(&cli{}, os.Stderr, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Errorf("%s: holdfast %s: %v", what, strings.Join(args, " "), err)
	}
}

// TestHZ16_ServiceFile: a restart of the service leaves boxes alone, and its
// hardening does not take away what boxes are made of.
func TestHZ16_ServiceFile(t *testing.T) {
	name := filepath.Join("..", "..", "packaging", "holdfast.service")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for l := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), "="); ok && !strings.HasPrefix(k, "#") {
			set[k] = v
		}
	}
	for k, v := range map[string]string{"Type": "notify", "KillMode": "process", "Delegate": "yes", "StateDirectoryMode": "0700", "Environment": "HOLDFAST_ON_SHUTDOWN=keep", "Restart": "on-failure", "RestartPreventExitStatus": "", "SuccessExitStatus": "", "StartLimitIntervalSec": "0"} {
		if set[k] != v {
			t.Errorf("%s=%s, want %s", k, set[k], v)
		}
	}
	for _, k := range []string{
		"RestrictNamespaces", "ProtectProc", "ProcSubset", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups",
		"ProtectHostname", "PrivateUsers", "SystemCallFilter", "MemoryDenyWriteExecute",
	} {
		if set[k] != "" {
			t.Errorf("%s=%s breaks boxes", k, set[k])
		}
	}
	args := strings.Fields(set["ExecStart"])
	if len(args) < 2 || args[0] != "/usr/local/bin/holdfast" {
		t.Fatalf("ExecStart=%s", set["ExecStart"])
	}
	parses(t, name, args[1:])
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: the file is not verified")
		return
	}
	// It wants the program to be there, and manual pages to be installed.
	unit := filepath.Join(t.TempDir(), "holdfast.service")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	there := strings.NewReplacer(args[0], self, "Documentation=man:", "#").Replace(string(text))
	if err := os.WriteFile(unit, []byte(there), 0o644); err != nil {
		t.Fatal(err)
	}
	// What it says of other units, or of this machine, is not ours.
	if out, err := exec.Command(verify, "verify", "--man=no", unit).CombinedOutput(); strings.Contains(string(out), "holdfast.service:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDockerfile: from scratch, not root, and every command line is one that the
// program takes. scripts/release-dry runs the root that it makes.
func TestDockerfile(t *testing.T) {
	name := filepath.Join("..", "..", "packaging", "Dockerfile")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	known := []string{"FROM", "ARG", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
	for l := range strings.Lines(string(text)) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		word, rest, _ := strings.Cut(l, " ")
		if !slices.Contains(known, word) || got[word] != "" {
			t.Errorf("%q is not known, or there twice", l)
		}
		got[word] = rest
	}
	if got["FROM"] != "scratch" || got["USER"] == "" || strings.HasPrefix(got["USER"], "0") || strings.HasPrefix(got["USER"], "root") {
		t.Errorf("FROM %s, USER %s", got["FROM"], got["USER"])
	}
	list := func(s string) (args []string) {
		if err := json.Unmarshal([]byte(s[max(0, strings.Index(s, "[")):]), &args); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return args
	}
	entry := list(got["ENTRYPOINT"])
	parses(t, name, append(entry[1:], list(got["CMD"])...))
	health := list(got["HEALTHCHECK"])
	if health[0] != entry[0] {
		t.Errorf("HEALTHCHECK runs %s, the image has %s", health[0], entry[0])
	}
	parses(t, name, health[1:])
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/faultloop"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// machine runs servers on one data directory, each in the boot of the machine that it is
// in: the boot id is bound over the kernel's, in the server's own mount namespace.
type machine struct {
	t      *testing.T
	dir    string
	boots  int
	server *child.Server
	*client.Client
}

func newMachine(t *testing.T) *machine {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can bind another boot id")
	}
	m := &machine{t: t, dir: testkit.BaseDir(t)}
	binary, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	// A second /proc lets boxes mount theirs: the first has something mounted on it.
	script := fmt.Sprintf(`#!/bin/sh
exec unshare -m sh -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" &&
mount --bind "$0/boot_id" /proc/sys/kernel/random/boot_id && exec "$@"' %q %q "$@"
`, m.dir, binary)
	if err := os.Mkdir(filepath.Join(m.dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "serve.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.server != nil {
			m.server.Terminate(time.Minute)
		}
	})
	m.reboot()
	return m
}

// reboot gives the machine another boot id.
func (m *machine) reboot() {
	m.boots++
	id := fmt.Sprintf("%08d-1111-4111-8111-111111111111\n", m.boots)
	if err := os.WriteFile(filepath.Join(m.dir, "boot_id"), []byte(id), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) start() {
	m.t.Helper()
	data := filepath.Join(m.dir, "data")
	var err error
	m.server, err = child.Start(m.t.Context(), child.Config{
		Binary: filepath.Join(m.dir, "serve.sh"), Env: os.Environ(), Log: filepath.Join(m.dir, "log"),
		Args: []string{"--data", data, "--listen", "127.0.0.1:0", "--set", "limits.mode=best-effort"},
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		m.t.Fatalf("%v\n%s", err, log)
	}
	if m.Client, err = m.server.Client(data); err != nil {
		m.t.Fatal(err)
	}
}

// cut ends the server and every box at once.
func (m *machine) cut() {
	m.t.Helper()
	list, err := m.Containers(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	m.server.Kill()
	for _, c := range list {
		// Pid 0 would be this very process group.
		if c.PID > 1 {
			_ = syscall.Kill(c.PID, syscall.SIGKILL)
		}
	}
}

// risks are the notices of power cuts in a session's log.
func (m *machine) risks(id holdfast.SessionID) []holdfast.FilesAtRisk {
	m.t.Helper()
	var out []holdfast.FilesAtRisk
	for ev, err := range m.AllEvents(m.t.Context(), id, 0) {
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			m.t.Fatalf("%v\n%s", err, log)
		}
		var n holdfast.Notice
		if ev.Type == holdfast.EventNotice && ev.Decode(&n) == nil && n.Code == holdfast.NoticeFilesAtRisk {
			out = append(out, *n.AtRisk)
		}
	}
	return out
}

// TestHZ21_PowerCutIsToldByARealServer: a server that starts in another boot of the
// machine gives a session with a turn and with a command outside of turns one notice of
// both, and the receipt of its resume too. A crash in the same boot gives none, nor does a
// reboot after an end in order.
func TestHZ21_PowerCutIsToldByARealServer(t *testing.T) {
	m := newMachine(t)
	m.start()
	ctx := t.Context()
	s, err := m.CreateSession(ctx, holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	bash := `<script>[{"tool":"Bash","input":{"command":"echo a > a"}},{"say":"done"}]</script>`
	if err := child.Turn(ctx, m.Client, s.ID, bash); err != nil {
		t.Fatal(err)
	}
	if res, err := m.Exec(ctx, s.ID, holdfast.ExecRequest{Command: "echo b > b"}); err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := m.PauseSession(ctx, s.ID, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	m.cut()
	m.start()
	if got := m.risks(s.ID); len(got) != 0 {
		t.Errorf("a crash in the same boot gave %+v", got)
	}
	m.cut()
	m.reboot()
	m.start()
	got := m.risks(s.ID)
	if len(got) != 1 || len(got[0].Turns) != 1 || got[0].Turns[0].Number != 1 || !got[0].Direct {
		t.Fatalf("notices %+v, want one of turn 1 and of a command outside of turns", got)
	}
	if res, err := m.ResumeSession(ctx, s.ID, holdfast.ResumeSession{}); err != nil || res.Receipt == nil || res.Receipt.AtRisk == nil {
		t.Errorf("receipt %+v, %v", res.Receipt, err)
	}
	if err := child.Turn(ctx, m.Client, s.ID, bash); err != nil {
		t.Fatal(err)
	}
	if !m.server.Terminate(time.Minute) {
		t.Fatal("the server did not end")
	}
	m.reboot()
	m.start()
	if got := m.risks(s.ID); len(got) != 1 {
		t.Errorf("after an end in order: %+v", got[1:])
	}
}

// TestFaultsOfEveryKind: a sample of `holdfast torture --faults`.
func TestFaultsOfEveryKind(t *testing.T) {
	testkit.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can mount a disk image")
	}
	binary, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	res, err := faultloop.Run(ctx, faultloop.Config{
		Binary: binary, Dir: testkit.BaseDir(t), Env: append(os.Environ(), "HOLDFAST_DEFAULT_MODEL=scripted"), Faults: 12, Sessions: 3, Seed: 5, Out: &out,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if err := res.Print(&out); err != nil {
		t.Fatal(err)
	}
	if !res.OK() || res.Messages == 0 || res.Effects == 0 {
		t.Error(out.String())
	}
}

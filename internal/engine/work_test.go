package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func (m *machine) exec(id holdfast.SessionID, command string) holdfast.ExecResult {
	m.t.Helper()
	res, err := m.Exec(m.t.Context(), id, holdfast.ExecRequest{Command: command}, nil, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return res
}

func (m *machine) read(id holdfast.SessionID, path string) string {
	m.t.Helper()
	var out bytes.Buffer
	if err := m.ReadFile(m.t.Context(), id, path, &out); err != nil {
		m.t.Fatal(err)
	}
	return out.String()
}

func TestExecIsAResultWhateverTheCommandDoes(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	for name, c := range map[string]struct {
		req            holdfast.ExecRequest
		class          holdfast.ExitClass
		code           int
		stdout, stderr string
	}{
		"shell":   {holdfast.ExecRequest{Command: "echo out; echo err >&2"}, holdfast.ExitOK, 0, "out\n", "err\n"},
		"argv":    {holdfast.ExecRequest{Argv: []string{"echo", "a  b", "$HOME"}}, holdfast.ExitOK, 0, "a  b $HOME\n", ""},
		"status":  {holdfast.ExecRequest{Command: "exit 7"}, holdfast.ExitExit, 7, "", ""},
		"stdin":   {holdfast.ExecRequest{Command: "cat", Stdin: []byte("in")}, holdfast.ExitOK, 0, "in", ""},
		"env":     {holdfast.ExecRequest{Command: "echo $X", Env: map[string]string{"X": "y"}}, holdfast.ExitOK, 0, "y\n", ""},
		"cwd":     {holdfast.ExecRequest{Command: "pwd", Cwd: "/home/agent"}, holdfast.ExitOK, 0, "/home/agent\n", ""},
		"default": {holdfast.ExecRequest{Command: "pwd"}, holdfast.ExitOK, 0, "/workspace\n", ""},
		"no such": {holdfast.ExecRequest{Argv: []string{"no-such-program"}}, holdfast.ExitError, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := m.Exec(t.Context(), id, c.req, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.Class != c.class || string(res.Stdout) != c.stdout || string(res.Stderr) != c.stderr {
				t.Errorf("result = %+v: %q %q", res, res.Stdout, res.Stderr)
			}
			if c.class != holdfast.ExitError && res.ExitCode != c.code {
				t.Errorf("code %d", res.ExitCode)
			}
		})
	}
	if slices.Contains(m.types(id), "tool.started") {
		t.Error("an exec of the user is in the log as a tool")
	}
}

func TestExecStreams(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	var out bytes.Buffer
	res, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo out; echo err >&2"}, &out, nil)
	if err != nil || out.String() != "out\n" || len(res.Stdout) != 0 || string(res.Stderr) != "err\n" {
		t.Errorf("%+v, %v, streamed %q", res, err, out.String())
	}
	var errs bytes.Buffer
	res, err = m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo out; echo err >&2"}, nil, &errs)
	if err != nil || errs.String() != "err\n" || string(res.Stdout) != "out\n" {
		t.Errorf("%+v, %v, streamed %q", res, err, errs.String())
	}
}

func TestExecCollectsNoMoreThanItMay(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	res := m.exec(id, "yes 0123456789012345678901234567890123456789012345678901234567890 | head -c 12000000")
	if len(res.Stdout) > 10<<20 || !res.Truncated {
		t.Errorf("%d bytes, truncated %v", len(res.Stdout), res.Truncated)
	}
}

// TestASH18_TimeoutIsAResult, and 100 commands at once, with a turn beside them,
// each get their own output and status.
func TestASH18_TimeoutIsAResult(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	res, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo before; sleep 3600", TimeoutMS: 100}, nil, nil)
	if err != nil || res.Class != holdfast.ExitTimeout || string(res.Stdout) != "before\n" {
		t.Errorf("%+v, %v", res, err)
	}
	turn := m.send(id, script(bash(gated), say("ok")))
	m.appears(id, "begun")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			res, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: fmt.Sprintf("echo out %d; echo err %d >&2; exit %d", i, i, i%5)}, nil, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if string(res.Stdout) != fmt.Sprintf("out %d\n", i) || string(res.Stderr) != fmt.Sprintf("err %d\n", i) || res.ExitCode != i%5 {
				t.Errorf("exec %d got %+v: %q %q", i, res, res.Stdout, res.Stderr)
			}
		})
	}
	all.Wait()
	m.put(id, "go", "")
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || m.lines(id, "lines") != 1 {
		t.Errorf("turn = %+v", got)
	}
}

func TestExecEndsWithItsCaller(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.exec(id, "true")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := m.Exec(ctx, id, holdfast.ExecRequest{Command: "trap 'echo x > trapped' TERM; echo begun > begun; sleep 3600"}, nil, nil)
		ended <- err
	}()
	m.appears(id, "begun")
	cancel()
	if err := <-ended; err == nil {
		t.Error("the exec of a caller who went away succeeded")
	}
	until(t, func() bool {
		calls, err := m.live[holdfast.Untrusted].Live(m.box(id)).Calls(t.Context())
		return err == nil && len(calls) == 0
	})
}

func TestBadExecs(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	for name, req := range map[string]holdfast.ExecRequest{
		"nothing":      {},
		"both":         {Command: "a", Argv: []string{"a"}},
		"nul":          {Command: "a\x00b"},
		"nul in argv":  {Argv: []string{"a", "b\x00"}},
		"nul in cwd":   {Command: "a", Cwd: "/\x00"},
		"negative":     {Command: "a", TimeoutMS: -1},
		"too long":     {Command: "a", TimeoutMS: 3_600_001},
		"env name":     {Command: "a", Env: map[string]string{"A-B": "x"}},
		"env reserved": {Command: "a", Env: map[string]string{"HOLDFAST_X": "x"}},
		"env nul":      {Command: "a", Env: map[string]string{"A": "x\x00"}},
	} {
		if _, err := m.Exec(t.Context(), id, req, nil, nil); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.noBoxes()
}

func TestFiles(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	info, err := m.WriteFile(t.Context(), id, "a/b/f.txt", []byte("hello"), 0o640)
	if err != nil || info.Size != 5 || info.Mode&0o777 != 0o640 || info.Type != "file" {
		t.Fatalf("%+v, %v", info, err)
	}
	if got := m.file(id, "a/b/f.txt"); got != "hello" {
		t.Errorf("on the host: %q", got)
	}
	if got := m.read(id, "a/b/f.txt"); got != "hello" {
		t.Errorf("read back: %q", got)
	}
	if _, err := m.WriteFile(t.Context(), id, "/workspace/a/b/f.txt", []byte("more"), 0); err != nil {
		t.Error(err)
	}
	list, err := m.ListFiles(t.Context(), id, "a/b")
	if err != nil || len(list.Entries) != 1 || !strings.HasSuffix(list.Entries[0].Path, "f.txt") {
		t.Errorf("%+v, %v", list, err)
	}
	one, err := m.ListFiles(t.Context(), id, "a/b/f.txt")
	if err != nil || len(one.Entries) != 1 || one.Entries[0].Size != 4 {
		t.Errorf("%+v, %v", one, err)
	}
	m.wantKind(m.RemoveFile(t.Context(), id, "a", false), holdfast.KindConflict)
	if err := m.RemoveFile(t.Context(), id, "a", true); err != nil {
		t.Error(err)
	}
	_, err = m.ListFiles(t.Context(), id, "a")
	m.wantKind(err, holdfast.KindNotFound)
	m.wantKind(m.ReadFile(t.Context(), id, "a/b/f.txt", io.Discard), holdfast.KindNotFound)
	_, err = m.WriteFile(t.Context(), id, "f", make([]byte, 64<<20+1), 0)
	m.wantKind(err, holdfast.KindTooLarge)
	_, err = m.WriteFile(t.Context(), id, "f", nil, 0o4755)
	m.wantKind(err, holdfast.KindInvalid)
}

// TestWorkInEachState: on a paused or errored session work resumes it first, on
// an ended one everything is gone, and an unknown one is not found.
func TestWorkInEachState(t *testing.T) {
	m := newMachine(t, nil)
	verbs := map[string]func(id holdfast.SessionID) error{
		"exec": func(id holdfast.SessionID) error {
			_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
			return err
		},
		"list": func(id holdfast.SessionID) error {
			_, err := m.ListFiles(t.Context(), id, ".")
			return err
		},
		"read": func(id holdfast.SessionID) error { return m.ReadFile(t.Context(), id, "CLAUDE.md", io.Discard) },
		"write": func(id holdfast.SessionID) error {
			_, err := m.WriteFile(t.Context(), id, "f", []byte("x"), 0)
			return err
		},
		"remove": func(id holdfast.SessionID) error { return m.RemoveFile(t.Context(), id, "CLAUDE.md", false) },
	}
	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			id := m.create(holdfast.CreateSession{})
			if err := verb(id); err != nil {
				t.Errorf("active: %v", err)
			}
			if name == "remove" {
				m.put(id, "CLAUDE.md", "x")
			}
			if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
			if err := verb(id); err != nil {
				t.Errorf("paused: %v", err)
			}
			if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusActive {
				t.Errorf("afterwards the session is %s", s.Status)
			}
			if _, err := m.End(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
			m.wantKind(verb(id), holdfast.KindGone)
			m.wantKind(verb("01890a5d-ac96-774b-bcce-b302099a8057"), holdfast.KindNotFound)
		})
	}
	m.leave()
	for name, verb := range verbs {
		if err := verb(m.create(holdfast.CreateSession{})); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("%s while the server drains: %v", name, err)
		}
	}
}

// noBoxes waits until no driver has a box any more.
func (m *machine) noBoxes() {
	m.t.Helper()
	until(m.t, func() bool {
		list, err := m.Containers(m.t.Context())
		return err == nil && len(list) == 0
	})
}

// leave starts to shut down.
func (w *world) leave() {
	w.t.Helper()
	if err := w.Drain(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// TestTerminal: the mem driver has no terminals, and says so; what comes before
// is the same as everywhere.
func TestTerminal(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	resize := make(chan holdfast.TermSize, 1)
	resize <- holdfast.TermSize{Rows: 10, Cols: 10}
	close(resize)
	res, err := m.Terminal(t.Context(), id, holdfast.TerminalRequest{}, strings.NewReader("exit\n"), io.Discard, resize)
	if err == nil && res.ExitCode == 0 {
		t.Errorf("a terminal where there is none: %+v", res)
	}
	for _, exec := range []holdfast.ExecRequest{
		{},
		{Argv: []string{"a"}, Command: "b"},
		{Argv: []string{"a"}, Stdin: []byte("x")},
		{Argv: []string{"a"}, Env: map[string]string{"HOLDFAST_X": "y"}},
		{Argv: []string{"a"}, TimeoutMS: -1},
	} {
		_, err := m.Terminal(t.Context(), id, holdfast.TerminalRequest{Exec: &exec}, strings.NewReader(""), io.Discard, nil)
		m.wantKind(err, holdfast.KindInvalid)
	}
	if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	_, _ = m.Terminal(t.Context(), id, holdfast.TerminalRequest{Size: holdfast.TermSize{Rows: 1, Cols: 1}}, strings.NewReader(""), io.Discard, nil)
	if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusActive {
		t.Errorf("a terminal left the session %s", s.Status)
	}
	if _, err := m.End(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	_, err = m.Terminal(t.Context(), id, holdfast.TerminalRequest{}, strings.NewReader(""), io.Discard, nil)
	m.wantKind(err, holdfast.KindGone)
}

// TestLookGoesOnInTheNextBox: reading meets a box that died and reads again.
func TestLookGoesOnInTheNextBox(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.exec(id, "echo text > f")
	for range 5 {
		m.untrusted.KillBox(m.box(id))
		if got := m.read(id, "f"); got != "text\n" {
			t.Errorf("read %q", got)
		}
		m.untrusted.DropConnection(m.box(id))
		if list, err := m.ListFiles(t.Context(), id, "f"); err != nil || len(list.Entries) != 1 {
			t.Errorf("%+v, %v", list, err)
		}
	}
}

func TestASH4_EnvironmentIsSealedAndEffective(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{Env: map[string]string{"SECRET_WORD": "xyzzy-4711", "B": "two"}})
	want := func(when string) {
		t.Helper()
		if res := m.exec(id, "echo $SECRET_WORD $B"); string(res.Stdout) != "xyzzy-4711 two\n" {
			t.Errorf("%s the box has %q", when, res.Stdout)
		}
	}
	want("at first")
	m.untrusted.KillBox(m.box(id))
	want("in the next box")
	m.restart()
	want("after a restart")
	m.untrusted.KillBox(m.box(id))
	m.restart()
	want("in a new box of a new server")
	if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
		t.Fatal(err)
	}
	want("after a cold resume")
	if strings.Contains(m.dump(id), "xyzzy") {
		t.Error("the value is in the log")
	}
	s, err := m.Session(t.Context(), id)
	if err != nil || s.Env["SECRET_WORD"] != "***" {
		t.Errorf("%+v, %v", s.Env, err)
	}
	m.stop(false)
	err = filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("xyzzy-4711")) {
			t.Errorf("%s holds the value", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	m.start()
}

// TestEnvironmentThatDoesNotOpen: a box never starts with less than it was given.
func TestEnvironmentThatDoesNotOpen(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{Env: map[string]string{"A": "b"}})
	m.stop(false)
	m.sealer = blindSealer{}
	m.start()
	_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
	m.wantKind(err, holdfast.KindInternal)
	got := m.run(id, script(bash("true"), say("ok")))
	if got.Status != holdfast.TurnFailed {
		t.Errorf("turn = %+v", got)
	}
	m.noBoxes()
	_, _, err = m.Create(t.Context(), holdfast.CreateSession{Env: map[string]string{"A": "b"}}, "")
	m.wantKind(err, holdfast.KindUnavailable)
}

// blindSealer has lost its key.
type blindSealer struct{}

func (blindSealer) Hold() func() { return func() {} }

func (blindSealer) SealEnvironment(holdfast.SessionID, []byte) ([]byte, error) {
	return nil, holdfast.Errorf(holdfast.KindUnavailable, "seal", "no key")
}

func (blindSealer) OpenEnvironment(holdfast.SessionID, []byte) ([]byte, error) {
	return []byte("not JSON"), nil
}

// heldSealer notes whether the session is stored when the key is released.
type heldSealer struct {
	plainSealer
	stored func() bool
	was    []bool
}

func (h *heldSealer) Hold() func() { return func() { h.was = append(h.was, h.stored()) } }

// TestTheKeyIsHeldUntilTheSessionIsStored: an environment is never stored under a root key that a
// rotation has removed meanwhile.
func TestTheKeyIsHeldUntilTheSessionIsStored(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	h := &heldSealer{}
	m := newMachine(t, func(m *machine) { m.sealer = h })
	h.stored = func() bool {
		_, err := m.Session(t.Context(), id)
		return err == nil
	}
	m.create(holdfast.CreateSession{ID: id, Env: map[string]string{"A": "b"}})
	if _, _, err := m.Create(t.Context(), holdfast.CreateSession{Agent: "no agent"}, ""); err == nil {
		t.Fatal("a session was created without an agent")
	}
	if !slices.Equal(h.was, []bool{true, true}) {
		t.Errorf("the key was released %d times; was the session stored each time: %v", len(h.was), h.was)
	}
}

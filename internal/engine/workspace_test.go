package engine_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestReleaseSettled: after a restart the box forgets calls whose outcome is in
// the log, and those that nobody will ever ask for; a call whose intent has no
// outcome is kept.
func TestReleaseSettled(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("ok")))
	box := m.live[holdfast.Untrusted].Live(m.box(id)).Of(id)
	var calls []holdfast.CallID
	for range 3 {
		u := newUUID(t)
		calls = append(calls, holdfast.CallID(u))
		if _, err := box.Exec(t.Context(), sandbox.Call{ID: calls[len(calls)-1]}, wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	settled, dangling, foreign := calls[0], calls[1], calls[2]
	m.record(id, "tool.started", holdfast.ToolStarted{ToolUseID: "a", Call: settled, Box: m.box(id), Boot: box.Boot()})
	m.record(id, "tool.finished", holdfast.ToolFinished{ToolUseID: "a", Call: settled, Outcome: holdfast.ExitOK})
	m.record(id, "tool.started", holdfast.ToolStarted{ToolUseID: "b", Call: dangling, Box: m.box(id), Boot: box.Boot()})
	m.restart()
	if _, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	held := func() (out []holdfast.CallID) {
		list, err := m.live[holdfast.Untrusted].Live(m.box(id)).Calls(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			out = append(out, c.Call)
		}
		return out
	}
	until(t, func() bool { return !slices.Contains(held(), settled) && !slices.Contains(held(), foreign) })
	if !slices.Contains(held(), dangling) {
		t.Errorf("the call whose outcome is missing was released; held: %v", held())
	}
}

// TestASH9_MissingWorkspaceIsNeverReplacedSilently, also when the session was
// active all the time.
//
// DOC-19.
func TestASH9_MissingWorkspaceIsNeverReplacedSilently(t *testing.T) {
	for _, how := range []string{"turn", "exec", "paused"} {
		t.Run(how, func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.create(holdfast.CreateSession{})
			m.run(id, script(bash("echo precious > f"), say("ok")))
			if _, err := m.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(m.path(id, "")); err != nil {
				t.Fatal(err)
			}
			switch how {
			case "turn":
				if got := m.run(id, script(bash("true"), say("ok"))); got.Status != holdfast.TurnFailed {
					t.Errorf("turn = %+v", got)
				}
			case "exec":
				_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
				m.wantKind(err, holdfast.KindConflict)
			case "paused":
				if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := m.Send(t.Context(), id, holdfast.SendMessage{Text: "hello"})
			m.wantKind(err, holdfast.KindConflict)
			if !strings.Contains(holdfast.HintOf(err), "--fresh") {
				t.Errorf("hint %q", holdfast.HintOf(err))
			}
			if _, err := os.Stat(m.path(id, "")); err == nil {
				t.Error("an empty workspace took the place of the lost one")
			}
			dry, err := m.Resume(t.Context(), id, holdfast.ResumeSession{Fresh: true, DryRun: true})
			if err != nil || dry.Receipt.Files != holdfast.FilesLost || dry.Session.Status == holdfast.StatusActive {
				t.Errorf("dry run = %+v, %v", dry, err)
			}
			res, err := m.Resume(t.Context(), id, holdfast.ResumeSession{Fresh: true})
			if err != nil || res.Receipt.Files != holdfast.FilesLost || len(res.Receipt.Lost) == 0 {
				t.Fatalf("fresh = %+v, %v", res, err)
			}
			if got := m.run(id, script(bash("echo new > g"), say("ok"))); got.Status != holdfast.TurnCompleted {
				t.Errorf("turn = %+v\n%s", got, m.dump(id))
			}
			if m.file(id, "f") != "" || m.file(id, "g") != "new\n" || !strings.Contains(m.file(id, "CLAUDE.md"), "Be brief.") {
				t.Errorf("the new workspace: CLAUDE.md %q, f %q, g %q", m.file(id, "CLAUDE.md"), m.file(id, "f"), m.file(id, "g"))
			}
			// From here on its files count again.
			if _, err := m.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(m.path(id, "")); err != nil {
				t.Fatal(err)
			}
			_, err = m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
			m.wantKind(err, holdfast.KindConflict)
		})
	}
}

// TestAgentFilesAreSeededOnce: only the first box gets the agent's files.
//
// DOC-17.
func TestAgentFilesAreSeededOnce(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	if m.file(id, "CLAUDE.md") != "" {
		t.Error("creating a session wrote files")
	}
	m.run(id, script(bash("cat CLAUDE.md; echo mine > CLAUDE.md"), say("ok")))
	if f := datas[holdfast.ToolFinished](m.world, id, "tool.finished"); !strings.Contains(f[0].Content, "Be brief.") {
		t.Errorf("the agent saw %+v", f)
	}
	m.restart()
	m.untrusted.KillBox(m.box(id))
	m.run(id, script(bash("rm CLAUDE.md"), say("ok")))
	m.untrusted.KillBox(m.box(id))
	m.run(id, script(bash("true"), say("ok")))
	if got := m.file(id, "CLAUDE.md"); got != "" {
		t.Errorf("what the agent removed was written again: %q", got)
	}
}

// TestSeedingNeverOverwrites: files that are there before the first box stay.
func TestSeedingNeverOverwrites(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	if err := os.MkdirAll(m.path(id, ""), 0o755); err != nil {
		t.Fatal(err)
	}
	m.put(id, "CLAUDE.md", "of the user\n")
	m.run(id, script(bash("true"), say("ok")))
	if got := m.file(id, "CLAUDE.md"); got != "of the user\n" {
		t.Errorf("CLAUDE.md = %q", got)
	}
}

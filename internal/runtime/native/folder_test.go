package native_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
)

// TestFolder: a message that names a command of the agent's folder says what the command
// says, in every later request as well; skills are listed, and the chosen style counts.
//
// FH-12.
func TestFolder(t *testing.T) {
	f := &folder.Folder{
		Skills: []folder.Skill{
			{Name: "hello", Description: "HELLO-DESC", File: ".claude/skills/hello/SKILL.md", Body: "HELLO $ARGUMENTS"},
			{Name: "go", Description: "GO-DESC", File: ".claude/commands/go.md", Body: "GO-BODY", Command: true},
		},
		Styles: []folder.Style{{Name: "terse", Body: "TERSE-BODY"}}, Style: "terse",
	}
	w, steered := runtimetest.NewWorld(t), new(bool)
	live, l := listening(t)
	do := func(text string) {
		t.Helper()
		h := w.NewHost()
		id := w.Begin(text)
		h.OnAt = func(point string) {
			if point == "finished-uncommitted" && !*steered {
				*steered = true
				w.Steer(id, "/hello STEERED")
			}
		}
		turn := w.Turn(id, false)
		turn.Folder = f
		ran := h.Run(t.Context(), live, turn)
		if ran.Err != nil {
			t.Fatal(ran.Err)
		}
		w.End(id, holdfast.EventTurnCompleted, ran.Result.Final...)
		h.Close()
	}
	do("/hello FIRST")
	do(`/go <script>[{"tool":"Bash","input":{"command":"true"}},{"say":"two"}]</script>`)
	fresh, after := listening(t)
	live = fresh
	do("end")
	for i := range l.reqs[1:] {
		prefix(t, l.reqs[i], l.reqs[i+1])
	}
	prefix(t, l.reqs[len(l.reqs)-1], after.reqs[0])
	last := after.reqs[0]
	told(t, last, "HELLO FIRST", "GO-BODY", "HELLO STEERED", "\nend\n")
	for _, want := range []string{"- hello: HELLO-DESC (", "skills/hello/SKILL.md)", "TERSE-BODY"} {
		if !strings.Contains(last.System, want) {
			t.Errorf("the system prompt lacks %q", want)
		}
	}
	if strings.Contains(last.System, "GO-DESC") {
		t.Error("a command is listed as a skill")
	}

	other := *f
	other.Skills = slices.Clone(f.Skills)
	other.Skills[0].Body = "OTHER $ARGUMENTS"
	f = &other // the session goes on with another version of its agent
	do("again")
	told(t, after.reqs[1], "OTHER FIRST", "GO-BODY", "OTHER STEERED", "\nagain\n")
}

// told checks what the messages of a request say.
func told(t *testing.T, req model.Request, wants ...string) {
	t.Helper()
	var said strings.Builder
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			said.WriteString(b.Text + "\n")
		}
	}
	for _, want := range wants {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the model was not told %q:\n%s", want, said.String())
		}
	}
}

package app_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestASH11_ForkIsASessionOfItsOwn: a fork has the files and messages of its checkpoint, and what is written later in
// either session does not show in the other. The environment, instructions, model, mode and rules of the session are
// effective in the fork.
//
// ASH-4.
func TestASH11_ForkIsASessionOfItsOwn(t *testing.T) {
	cfg := settings(t, "local")
	p := newProvider(t, "sk-ant-of-the-server")
	cfg.Models.Anthropic.URL = p.url
	c, _ := serve(t, cfg)
	if _, err := c.DeployAgent(t.Context(), "pilot", tarOf(
		t, entry{name: "CLAUDE.md", data: "You fly apollo."},
		entry{name: "holdfast.yaml", data: "model: anthropic/claude-of-the-agent\nmode: dontAsk\n" +
			"permissions:\n  allow: [\"Bash(echo *)\"]\n  deny: [\"Bash(touch *)\"]\n"},
	)); err != nil {
		t.Fatal(err)
	}
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "pilot", Env: map[string]string{"PROJECT": "apollo"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, c, s.ID, "echo of the checkpoint > f")
	turn(t, c, s.ID, script(bashCall("echo first for $PROJECT")))
	fork, err := c.Fork(t.Context(), s.ID, holdfast.ForkSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, c, s.ID, "echo of the parent >> f")
	turn(t, c, s.ID, script(bashCall("echo parent")))
	asked := len(p.Requests())
	turn(t, c, fork.ID, script(bashCall("echo second for $PROJECT"), bashCall("touch g"), `{"tool":"Write","input":{"file_path":"/workspace/g","content":"x"}}`))
	execute(t, c, fork.ID, "echo of the fork >> f")

	if f := logged[holdfast.ToolFinished](t, c, fork.ID, holdfast.EventToolFinished); len(f) != 2 ||
		strings.TrimSpace(f[0].Content) != "first for apollo" || strings.TrimSpace(f[1].Content) != "second for apollo" {
		t.Errorf("the tools of the fork said %+v", f)
	}
	denied := logged[holdfast.ToolDecision](t, c, fork.ID, holdfast.EventToolDenied)
	if len(denied) != 2 || denied[0].Rule != "Bash(touch *)" || denied[1].By != "mode" || !strings.Contains(denied[1].Reason, "dontAsk") {
		t.Errorf("denied in the fork: %+v", denied)
	}
	for i, req := range p.Requests()[asked:] {
		for _, want := range []string{"You fly apollo.", `"model":"claude-of-the-agent"`, "first for $PROJECT"} {
			if !strings.Contains(string(req.Body), want) {
				t.Errorf("request %d misses %s", i, want)
			}
		}
		if strings.Contains(string(req.Body), "echo parent") {
			t.Errorf("request %d has what was said to the parent after the fork", i)
		}
	}
	if n := len(p.Requests()) - asked; n < 2 || p.shown.Load() != p.asked.Load() {
		t.Errorf("%d requests; asked %d times, shown the key %d times", n, p.asked.Load(), p.shown.Load())
	}
	for id, want := range map[holdfast.SessionID]string{s.ID: "of the checkpoint\nof the parent\n", fork.ID: "of the checkpoint\nof the fork\n"} {
		if got := execute(t, c, id, "cat f"); got != want {
			t.Errorf("f of %s is %q, want %q", id, got, want)
		}
	}
	asked = len(p.Requests())
	turn(t, c, s.ID, "What do you know?")
	for _, req := range p.Requests()[asked:] {
		if strings.Contains(string(req.Body), "second for") {
			t.Error("the parent hears what was said to the fork")
		}
	}
}

// TestForkKeepsItsFiles: the turns that a fork copied have no files of their own in it. A rewind to one is refused,
// and takes nothing away; a fork of the other session is the way there.
func TestForkKeepsItsFiles(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	id := writes(t, c, "a", "b")
	fork, err := c.Fork(t.Context(), id, holdfast.ForkSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, fork.ID, script(bashCall("echo c > c")))
	turns, err := c.Turns(t.Context(), fork.ID, 0, 10)
	if err != nil || len(turns) != 3 {
		t.Fatalf("%+v, %v", turns, err)
	}
	for _, cp := range checkpoints(t, c, fork.ID, 1) {
		if cp.Files == 0 || cp.Turn == turns[0].ID {
			t.Errorf("a checkpoint of the fork: %+v", cp)
		}
	}
	if _, err := c.Rewind(t.Context(), fork.ID, holdfast.RewindSession{To: holdfast.CheckpointID(turns[0].ID)}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a rewind to a copied turn: %v", err)
	}
	if got := execute(t, c, fork.ID, "cat a b c"); got != "content of a\ncontent of b\nc\n" {
		t.Errorf("the fork has %q", got)
	}
}

package app_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// The checks of docs/conformance/sessions.md that need a whole server.

func execute(t *testing.T, c *client.Client, id holdfast.SessionID, command string) string {
	t.Helper()
	res, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: command})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%s: %+v, %v", command, res, err)
	}
	return string(res.Stdout)
}

// TestASH3_TextReachesTheAgent byte for byte, and stays so in the log.
func TestASH3_TextReachesTheAgent(t *testing.T) {
	c, _ := serve(t, settings(t, "mem"))
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	const text = "grüße, 世界 🚀 e\u0301 \u202e\t\r end"
	turn(t, c, ses.ID, text)
	if end := turn(t, c, ses.ID, "and?"); !strings.Contains(end.Result, `The first was: "`+text+`"`) {
		t.Errorf("the agent saw %q", end.Result)
	}
	turns, err := c.Turns(t.Context(), ses.ID, 0, 1)
	if err != nil || len(turns) != 1 || turns[0].Text != text {
		t.Errorf("the log has %+v, %v", turns, err)
	}
}

// TestASH18_ExecsDuringATurn: each of a hundred gets its own output and exit
// code, and the turn its own.
func TestASH18_ExecsDuringATurn(t *testing.T) {
	c, _ := serve(t, settings(t, "mem"))
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := c.Send(t.Context(), ses.ID, holdfast.SendMessage{
		Text: `<script>[{"tool":"Bash","input":{"command":"echo of the turn; echo > begun; until [ -e go ]; do sleep 0.01; done"}},{"say":"done"}]</script>`,
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			res, err := c.Exec(t.Context(), ses.ID, holdfast.ExecRequest{Command: fmt.Sprintf("echo out %d; echo err %d >&2; exit %d", i, i, i)})
			if err != nil || res.ExitCode != i || string(res.Stdout) != fmt.Sprintf("out %d\n", i) || string(res.Stderr) != fmt.Sprintf("err %d\n", i) {
				t.Errorf("exec %d: %+v, %v", i, res, err)
			}
		})
	}
	wg.Wait()
	execute(t, c, ses.ID, "until [ -e begun ]; do sleep 0.01; done; touch go")
	testkit.Eventually(t, "the turn ends", func() bool {
		got, err := c.Turn(t.Context(), ses.ID, sent.Turn.ID)
		return err == nil && got.Status == holdfast.TurnCompleted
	})
	for ev, err := range c.Follow(t.Context(), ses.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == holdfast.EventToolFinished {
			var d holdfast.ToolFinished
			if err := ev.Decode(&d); err != nil || strings.TrimSpace(d.Content) != "of the turn" {
				t.Errorf("the turn's tool said %q, %v", d.Content, err)
			}
			break
		}
	}
}

// TestASH13_UnknownKindsAreForwarded: an event of a type that this release does not know,
// written by a later one, comes out of the store, the stream and the client as it went in,
// in its place, and turns go on over it.
func TestASH13_UnknownKindsAreForwarded(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, "before")
	stop()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(cfg.Data, "holdfast.db")})
	if err != nil {
		t.Fatal(err)
	}
	later := journal.NewChange(ses.ID)
	later.Events = []journal.Draft{{Type: "from.the_future", Data: json.RawMessage(`{"a":{"b":["ü",1]}}`)}}
	done, err := journal.New(journal.Config{Store: store.Sessions, Leases: store.Leases}).Commit(t.Context(), later)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	want := done.Events[0]
	c, _ = serve(t, cfg)
	if end := turn(t, c, ses.ID, "after"); !strings.HasPrefix(end.Result, "You have sent 2 messages.") {
		t.Errorf("the next turn said %q", end.Result)
	}
	for what, all := range map[string]iter.Seq2[holdfast.Event, error]{
		"listed": c.AllEvents(t.Context(), ses.ID, 0), "followed": c.Follow(t.Context(), ses.ID, 0),
	} {
		for ev, err := range all {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Seq < want.Seq {
				continue
			}
			if ev.Type != want.Type || ev.Seq != want.Seq || string(ev.Data) != string(want.Data) || !ev.Time.Equal(want.Time) {
				t.Errorf("%s: %+v, want %+v", what, ev, want)
			}
			break
		}
	}
}

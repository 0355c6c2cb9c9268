package app_test

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// listed returns the ids of the sessions in a list.
func listed(t *testing.T, c *client.Client, f holdfast.SessionFilter) (ids []holdfast.SessionID) {
	t.Helper()
	page, err := c.Sessions(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range page.Sessions {
		ids = append(ids, s.ID)
	}
	return ids
}

// TestTrash: a deleted session is in the trash, with its log, files and checkpoints, also after a restart. Restored,
// it is forked and goes on. A purge leaves nothing.
func TestTrash(t *testing.T) {
	cfg := settings(t, "local")
	c, stop := serve(t, cfg)
	id, other := writes(t, c, "a"), writes(t, c, "b")
	if err := c.DeleteSession(t.Context(), id, holdfast.EndSession{Reason: "done with it"}); err != nil {
		t.Fatal(err)
	}
	stop()
	c, _ = serve(t, cfg)
	in := listed(t, c, holdfast.SessionFilter{Trash: true})
	out := listed(t, c, holdfast.SessionFilter{})
	if !slices.Equal(in, []holdfast.SessionID{id}) || !slices.Equal(out, []holdfast.SessionID{other}) {
		t.Errorf("in the trash %v, outside %v", in, out)
	}
	s, err := c.Session(t.Context(), id)
	if err != nil || s.PurgeAt == nil || s.Status != holdfast.StatusEnded {
		t.Errorf("%+v, %v", s, err)
	}
	if why := logged[holdfast.Reason](t, c, id, holdfast.EventSessionTrashed); len(why) != 1 || why[0].Reason != "done with it" {
		t.Errorf("reasons %+v", why)
	}
	if s, err = c.UntrashSession(t.Context(), id); err != nil || s.PurgeAt != nil || s.Status != holdfast.StatusEnded {
		t.Fatalf("%+v, %v", s, err)
	}
	forked, err := c.Fork(t.Context(), id, holdfast.ForkSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := execute(t, c, forked.ID, "cat a"); got != "content of a\n" {
		t.Errorf("the fork has %q", got)
	}
	for _, purge := range []bool{false, true} {
		if err := c.DeleteSession(t.Context(), id, holdfast.EndSession{Purge: purge}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.UntrashSession(t.Context(), id); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a session that was purged: %v", err)
	}
	if got := execute(t, c, forked.ID, "cat a"); got != "content of a\n" {
		t.Errorf("after the purge the fork has %q", got)
	}
	if in := listed(t, c, holdfast.SessionFilter{Trash: true}); len(in) > 0 {
		t.Errorf("in the trash %v", in)
	}
}

// TestStartFinishesPurges: a server that is killed in a purge leaves a session that is due. The next server removes it soon
// after its start.
func TestStartFinishesPurges(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	id := newSession(t, c, "untrusted")
	if err := c.DeleteSession(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	stop()
	execSQL(t, cfg.Data, `UPDATE sessions SET purge_at = 1`)
	c, _ = serve(t, cfg)
	testkit.Eventually(t, "the session is gone", func() bool {
		_, err := c.Session(t.Context(), id)
		return holdfast.IsKind(err, holdfast.KindNotFound)
	})
}

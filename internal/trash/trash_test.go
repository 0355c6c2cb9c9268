package trash_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/internal/trash"
)

// rig is a trash over a real store. It stands for the engine, the boxes and the snapshots.
type rig struct {
	*trash.Trash
	t     *testing.T
	store *sqlite.Store
	now   time.Time

	mu sync.Mutex // of the one unit
	// gone lists the sessions whose files and whose snapshots were removed. full lets the removal of files fail.
	gone []string
	full bool
	// dies is the step of a purge before which the server is killed; empty: none.
	dies string
	// looked is called when a session is to be looked at alone.
	looked func()
}

func newRig(t *testing.T) *rig {
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := &rig{t: t, store: store, now: time.UnixMilli(1_800_000_000_000).UTC()}
	r.Trash = trash.New(trash.Config{
		Sessions: r, Boxes: r, Store: mortal{store.Sessions, r}, Snapshots: r, Journal: journal.New(journal.Config{Store: store.Sessions, Leases: store.Leases}),
		Keep: time.Hour, Clock: func() time.Time { return r.now }, Log: slog.New(slog.DiscardHandler),
	})
	return r
}

func (r *rig) End(ctx context.Context, id holdfast.SessionID, _ holdfast.EndSession) (holdfast.Session, error) {
	row, err := r.store.Sessions.Row(ctx, id)
	if err != nil || row.Status == holdfast.StatusEnded {
		return row.Session, err
	}
	c := journal.NewChange(id)
	c.Status = []holdfast.Status{holdfast.StatusEnded}
	done, err := journal.New(journal.Config{Store: r.store.Sessions, Leases: r.store.Leases}).Commit(ctx, c)
	return done.Row.Session, err
}

func (r *rig) Alone(ctx context.Context, id holdfast.SessionID, work func(journal.Row) error) error {
	if r.looked != nil {
		r.looked()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	row, err := r.store.Sessions.Row(ctx, id)
	if err != nil {
		return err
	}
	return work(row)
}

// killed is what a server that is killed panics with: nothing after it happens.
type killed struct{ before string }

// step ends the server if it dies before this step.
func (r *rig) step(what string) {
	if r.dies == what {
		panic(killed{what})
	}
}

// mortal is a store whose server may be killed before it removes a session.
type mortal struct {
	trash.Store
	r *rig
}

func (m mortal) DeleteSession(ctx context.Context, id holdfast.SessionID) error {
	m.r.step("log")
	return m.Store.DeleteSession(ctx, id)
}

func (r *rig) RemoveFiles(_ context.Context, id holdfast.SessionID) error {
	r.step("files")
	if r.full {
		return errors.New("a file is busy")
	}
	r.gone = append(r.gone, "files of "+string(id))
	return nil
}

func (r *rig) Purge(_ context.Context, row journal.Row) error {
	r.step("snapshots")
	r.gone = append(r.gone, "snapshots of "+string(row.ID))
	return nil
}

func (r *rig) session() holdfast.SessionID {
	r.t.Helper()
	text, err := holdfast.NewUUID(time.Now(), rand.Reader)
	id := holdfast.SessionID(text)
	if err == nil {
		c := journal.NewChange(id)
		c.Create = &journal.Row{Session: holdfast.Session{Status: holdfast.StatusActive, Agent: "a", Trust: holdfast.Untrusted, Mode: holdfast.ModeDefault}}
		_, err = journal.New(journal.Config{Store: r.store.Sessions, Leases: r.store.Leases}).Commit(r.t.Context(), c)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// left returns the sessions outside of the trash and in it.
func (r *rig) left() (outside, inside []holdfast.SessionID) {
	r.t.Helper()
	for _, in := range []bool{false, true} {
		page, err := r.store.Sessions.Rows(r.t.Context(), journal.Query{Trash: in})
		r.must(err)
		for _, row := range page.Rows {
			if in {
				inside = append(inside, row.ID)
			} else {
				outside = append(outside, row.ID)
			}
		}
	}
	return outside, inside
}

// TestASH24_TrashIsEmptiedInTime: only sessions that were deleted, whose time has come, and that nobody
// restored are
// removed. A removal that failed is done again.
//
// WS-R82.
func TestASH24_TrashIsEmptiedInTime(t *testing.T) {
	r := newRig(t)
	kept, back, early, late := r.session(), r.session(), r.session(), r.session()
	for _, id := range []holdfast.SessionID{back, early} {
		r.must(r.Delete(t.Context(), id, holdfast.EndSession{}))
	}
	r.now = r.now.Add(time.Minute)
	r.must(r.Delete(t.Context(), late, holdfast.EndSession{}))
	r.must(r.Delete(t.Context(), early, holdfast.EndSession{})) // again: its time stays
	s, err := r.Restore(t.Context(), back)
	if err != nil || s.PurgeAt != nil || s.Status != holdfast.StatusEnded {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := r.Restore(t.Context(), kept); !holdfast.IsKind(err, holdfast.KindConflict) || holdfast.HintOf(err) == "" {
		t.Errorf("a session that is not in the trash: %v", err)
	}
	r.must(r.Empty(t.Context()))
	if _, in := r.left(); len(in) != 2 || len(r.gone) > 0 {
		t.Errorf("before the time: %v, removed %q", in, r.gone)
	}
	r.now = r.now.Add(59 * time.Minute)
	r.full = true
	r.must(r.Empty(t.Context()))
	if _, in := r.left(); len(in) != 2 {
		t.Errorf("a failed removal left %v", in)
	}
	r.full, r.gone = false, nil
	r.must(r.Empty(t.Context()))
	out, in := r.left()
	if !slices.Equal(in, []holdfast.SessionID{late}) || !slices.Equal(out, []holdfast.SessionID{back, kept}) {
		t.Errorf("outside %v, inside %v", out, in)
	}
	if want := []string{"snapshots of " + string(early), "files of " + string(early), "files of " + string(early)}; !slices.Equal(r.gone, want) {
		t.Errorf("removed %q", r.gone)
	}
	r.must(r.Delete(t.Context(), late, holdfast.EndSession{Purge: true}))
	if _, in := r.left(); len(in) > 0 {
		t.Errorf("inside %v", in)
	}
	if _, err := r.Restore(t.Context(), late); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a session that is gone: %v", err)
	}
}

// TestAPurgeIsFinished: a purge during which the server is killed is in the trash, cannot be restored, and is finished
// when the trash is emptied next. It does not matter whether the session was in the trash before.
func TestAPurgeIsFinished(t *testing.T) {
	for _, step := range []string{"files", "snapshots", "log"} {
		for _, before := range []bool{false, true} {
			r := newRig(t)
			id, other := r.session(), r.session()
			r.must(r.Delete(t.Context(), other, holdfast.EndSession{}))
			if before {
				r.must(r.Delete(t.Context(), id, holdfast.EndSession{}))
			}
			r.dies = step
			func() {
				defer func() {
					if _, ok := recover().(killed); !ok {
						t.Errorf("the server was not killed before it removed the %s", step)
					}
				}()
				_ = r.Delete(t.Context(), id, holdfast.EndSession{Purge: true})
			}()
			r.dies, r.gone = "", nil
			if _, in := r.left(); len(in) != 2 {
				t.Errorf("killed before the %s: in the trash %v", step, in)
			}
			if _, err := r.Restore(t.Context(), id); !holdfast.IsKind(err, holdfast.KindConflict) || holdfast.HintOf(err) == "" {
				t.Errorf("killed before the %s, restored: %v", step, err)
			}
			r.must(r.Empty(t.Context()))
			if out, in := r.left(); len(out) > 0 || !slices.Equal(in, []holdfast.SessionID{other}) {
				t.Errorf("killed before the %s: outside %v, inside %v", step, out, in)
			}
			if want := []string{"snapshots of " + string(id), "files of " + string(id), "files of " + string(id)}; !slices.Equal(r.gone, want) {
				t.Errorf("killed before the %s: removed %q", step, r.gone)
			}
		}
	}
}

// TestRestoreWinsOverTheTime: a session that is restored between the list of what is due and its removal, after the clock
// was set back, stays.
func TestRestoreWinsOverTheTime(t *testing.T) {
	r := newRig(t)
	id := r.session()
	r.must(r.Delete(t.Context(), id, holdfast.EndSession{}))
	r.now = r.now.Add(time.Hour)
	r.looked = func() {
		r.looked = nil
		r.now = r.now.Add(-time.Minute)
		_, err := r.Restore(t.Context(), id)
		r.must(err)
	}
	r.must(r.Empty(t.Context()))
	r.now = r.now.Add(time.Hour)
	r.must(r.Empty(t.Context()))
	if out, _ := r.left(); len(out) != 1 || len(r.gone) > 0 {
		t.Errorf("outside %v, removed %q", out, r.gone)
	}
}

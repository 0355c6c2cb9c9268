package place_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

// byTrust are the scopes of a session in a workspace: its trust decides whether it has the box of the workspace, or one of
// its own on the host.
type byTrust struct {
	place.Private
	trust *holdfast.Trust
	other holdfast.SessionID
}

func (b byTrust) Of(id holdfast.SessionID) place.Scope {
	sc := b.Private.Of(id)
	sc.Tree, sc.Files = filepath.Join(b.Dir, "tree"), "w-x"
	if sc.Shared = *b.trust == holdfast.Untrusted || id == b.other; sc.Shared {
		sc.Box, sc.Dir = "w-x", filepath.Join(b.Dir, "box")
	}
	return sc
}

func (b byTrust) Members(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	if box != "w-x" {
		return b.Private.Members(ctx, box)
	}
	ids := []holdfast.SessionID{b.other}
	if *b.trust == holdfast.Untrusted {
		ids = append(ids, named["live"])
	}
	return ids, nil
}

// TestABoxOfAFormerTrustEnds: a command starts the session's box on the host again while the session becomes untrusted. The
// box ends with the change of the trust, or else with the session.
func TestABoxOfAFormerTrustEnds(t *testing.T) {
	for name, end := range map[string]func(*place.Boxes, place.Scope, journal.Row) error{
		"change": func(b *place.Boxes, before place.Scope, row journal.Row) error {
			return b.StopIn(t.Context(), before, row, "trust changed")
		},
		"session": func(b *place.Boxes, _ place.Scope, row journal.Row) error { return b.Leave(t.Context(), row) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, trust := t.TempDir(), holdfast.Trusted
			open := func() *pool.Pool {
				return pool.New(pool.Config{
					Driver: joined{mem.New(mem.Config{}), func(sandbox.Member) {}}, Token: 1, FreezeAfter: -1, StopAfter: -1,
					OnEvent: func(pool.Event) {},
				})
			}
			host, boxed := open(), open()
			id, other := named["live"], named["claimed"]
			r := &rows{live: map[holdfast.SessionID]holdfast.Status{id: holdfast.StatusActive, other: holdfast.StatusActive}}
			b := place.New(place.Config{
				Dir: dir, Files: present{}, Scopes: byTrust{place.Private{Dir: dir}, &trust, other},
				Drivers: []place.Driver{
					{Pool: host, Serves: []holdfast.Trust{holdfast.Trusted}}, {Pool: boxed, Serves: []holdfast.Trust{holdfast.Untrusted}},
				},
			}, r)
			if err := b.Start(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			defer b.Close(context.WithoutCancel(t.Context()), true)
			row, before := journal.Row{Session: holdfast.Session{ID: id, Trust: trust, Status: holdfast.StatusActive}}, b.Scope(id)
			h, err := host.Acquire(t.Context(), sandbox.Spec{
				Box: id.Box(), Dir: filepath.Join(dir, "s"), Workspace: filepath.Join(dir, "tree"),
			}, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			h.Release()
			trust = holdfast.Untrusted
			b.Moved(id)
			if err := end(b, before, row); err != nil {
				t.Error(err)
			}
			if host.Live(id.Box()) != nil {
				t.Error("the box on the host goes on")
			}
		})
	}
}

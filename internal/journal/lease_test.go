package journal

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// counting gives out the tokens 1, 2, 3 and notes for which scopes.
type counting struct {
	scopes []holdfast.BoxID
	err    error
}

func (c *counting) Acquire(_ context.Context, scope holdfast.BoxID) (Token, error) {
	c.scopes = append(c.scopes, scope)
	return Token(len(c.scopes)), c.err
}

// seen is a store that notes the tokens of changes.
type seen struct {
	*memStore
	tokens []Token
}

func (s *seen) Commit(ctx context.Context, c Encoded) (Committed, error) {
	s.tokens = append(s.tokens, c.Token)
	return s.memStore.Commit(ctx, c)
}

// TestEveryChangeCarriesTheTokenOfItsScope expects the lease before the change, and in CommitAt before
// the row that the change is made from.
func TestEveryChangeCarriesTheTokenOfItsScope(t *testing.T) {
	store := &seen{memStore: newMem(sid)}
	leases := &counting{}
	j := New(Config{Store: store, Leases: leases, Scope: func(holdfast.SessionID) holdfast.BoxID { return "w-shared" }})
	mustCommit(t, j, 1)
	if _, err := j.CommitAt(t.Context(), sid, func(_ Row, c *Change) error {
		if c.Token != 2 {
			t.Errorf("the change is made with the token %d", c.Token)
		}
		c.Events = notices(1)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(store.tokens) != 2 || store.tokens[0] != 1 || store.tokens[1] != 2 || len(leases.scopes) != 2 || leases.scopes[1] != "w-shared" {
		t.Errorf("tokens %v of %v", store.tokens, leases.scopes)
	}
	leases.err = errors.New("lost")
	c := NewChange(sid)
	c.Events = notices(1)
	if _, err := j.Commit(t.Context(), c); !errors.Is(err, leases.err) {
		t.Error(err)
	}
	if _, err := j.CommitAt(t.Context(), sid, func(Row, *Change) error { t.Error("built without a lease"); return nil }); !errors.Is(err, leases.err) {
		t.Error(err)
	}
	if len(store.tokens) != 2 {
		t.Errorf("a change without a lease reached the store: %v", store.tokens)
	}
}

// toOthers is the Notifier of a server: it tells the journals of other servers.
type toOthers struct{ others []*Journal }

func (n *toOthers) Committed(id holdfast.SessionID, head int64) {
	for _, j := range n.others {
		j.Heard(id, head)
	}
}

// TestReadersOfAnotherServerGetTheEvents has two journals over one store. A live reader at the second
// gets each event that the first commits once and in order, also mixed with events of the second.
func TestReadersOfAnotherServerGetTheEvents(t *testing.T) {
	store := newMem(sid)
	var words [2]toOthers
	one := New(Config{Store: store, Notifier: &words[0]})
	two := New(Config{Store: store, Notifier: &words[1]})
	words[0].others, words[1].others = []*Journal{two}, []*Journal{one}
	r, err := two.Follow(t.Context(), sid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := int64(1)
	read := func(upto int64) {
		t.Helper()
		for next <= upto {
			frames, err := r.NextFrames(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range frames {
				if f.Seq != next {
					t.Fatalf("#%d where #%d was expected", f.Seq, next)
				}
				next++
			}
		}
	}
	mustCommit(t, one, 2)
	read(2)
	mustCommit(t, two, 1)
	mustCommit(t, one, 1)
	mustCommit(t, two, 3)
	read(7)
	two.Heard(sid, 5) // late
	two.Heard("01890a5d-ac96-774b-bcce-b302099a8058", 5)
	mustCommit(t, one, 1)
	read(8)
}

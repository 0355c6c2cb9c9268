package place_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// stored is a store of workspaces that only reads.
type stored struct {
	workspaces.Store
	records []workspaces.Record
	members map[holdfast.SessionID]workspaces.Member
}

func (s stored) Workspaces(context.Context) ([]workspaces.Record, error) { return s.records, nil }

func (s stored) Members(context.Context) (map[holdfast.SessionID]workspaces.Member, error) {
	return maps.Clone(s.members), nil
}

// TestWSR28_BoxesByMountScope: sessions share a box only with the same workspace and the same mount scope; only untrusted
// ones of the wide scope have the server's tree; and whatever can change a session's files is among the boxes that its
// checkpoints look at.
//
// WS-R31.
func TestWSR28_BoxesByMountScope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := stored{members: map[holdfast.SessionID]workspaces.Member{}}
		slugs := []holdfast.Slug{"", "a", "b"}
		for i, id := range slugs[1:] {
			st.records = append(st.records, workspaces.Record{Workspace: holdfast.Workspace{ID: id, Dir: rapid.SampledFrom([]string{"", "/home/u/" + string(id)}).Draw(t, "dir")}, Number: int64(i + 1), UID: 1000, GID: 1001})
		}
		var ids []holdfast.SessionID
		for i := range rapid.IntRange(1, 8).Draw(t, "sessions") {
			id := holdfast.SessionID(fmt.Sprintf("01a216a9-4a12-7576-9d8e-bab90d0ffc4%d", i))
			ids = append(ids, id)
			if slug := rapid.SampledFrom(slugs).Draw(t, "workspace"); slug != "" {
				st.members[id] = workspaces.Member{
					Workspace: slug, Mount: rapid.SampledFrom([]string{"", holdfast.MountTree}).Draw(t, "mount"),
					Trust: rapid.SampledFrom([]holdfast.Trust{holdfast.Trusted, holdfast.Untrusted}).Draw(t, "trust"),
				}
			}
		}
		root := rapid.SampledFrom([]string{"", "/srv/tree"}).Draw(t, "tree root")
		w, err := workspaces.Open(t.Context(), workspaces.Config{Store: st, Data: "/data", TreeRoot: root, Make: func(string, int64) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		can := rapid.Bool().Draw(t, "can share")
		s := &place.Shared{
			Private: place.Private{Dir: "/data/sessions"}, Workspaces: w, UIDBase: uint32(rapid.SampledFrom([]int{0, 100_000}).Draw(t, "uids")),
			Share: func(id holdfast.SessionID) bool { return can && st.members[id].Trust == holdfast.Untrusted },
		}
		for _, id := range ids {
			m, sc := st.members[id], s.Of(id)
			if _, err := holdfast.Parse[holdfast.BoxID](string(sc.Box)); err != nil {
				t.Fatal(err)
			}
			wide := m.Mount == holdfast.MountTree && m.Trust == holdfast.Untrusted
			if want := map[bool]string{true: root}[wide]; sc.Around != want {
				t.Fatalf("%s %+v has the tree %q, want %q", id, m, sc.Around, want)
			}
			if sc.Shared && strings.HasPrefix(string(sc.Box), "t-") != wide {
				t.Fatalf("%s %+v has the box %s", id, m, sc.Box)
			}
			list, err := s.Members(t.Context(), sc.Box)
			if err != nil {
				t.Fatal(err)
			}
			if gone := sc.Shared && wide && root == ""; slices.Contains(list, id) == gone {
				t.Fatalf("%s is in %s, whose members are %v", id, sc.Box, list)
			}
			for _, other := range list {
				if o := s.Of(other); o.Box != sc.Box || o.Dir != sc.Dir || o.Around != sc.Around {
					t.Fatalf("%s is a member of %+v, and has %+v", other, sc, o)
				}
			}
			boxes := s.Boxes(id)
			if !slices.IsSorted(boxes) || !slices.Contains(boxes, sc.Box) {
				t.Fatalf("boxes %s: %v", id, boxes)
			}
			for _, other := range ids {
				o, n := s.Of(other), st.members[other]
				together := other == id || m.Workspace != "" && m.Workspace == n.Workspace
				if (sc.Files == o.Files) != together || together && !slices.Contains(boxes, o.Box) {
					t.Fatalf("%s %+v and %s %+v: files %s and %s, boxes the first %v", id, m, other, n, sc.Files, o.Files, boxes)
				}
				if same := other == id || together && sc.Shared && o.Shared && m.Mount == n.Mount; (sc.Box == o.Box) != same || (sc.Dir == o.Dir) != same {
					t.Fatalf("%s %+v and %s %+v have the boxes %+v and %+v", id, m, other, n, sc, o)
				}
			}
		}
	})
}

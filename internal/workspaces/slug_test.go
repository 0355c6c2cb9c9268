package workspaces_test

import (
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// TestWSR4_EachLayerRefusesBadSlugs: the workspaces and their store refuse a bad slug by themselves,
// whatever the API did, and
// nothing is made, moved or removed for one (WS-R4, WS-R7).
//
// WS-R3, WS-R6.
func TestWSR4_EachLayerRefusesBadSlugs(t *testing.T) {
	h := open(t)
	h.create(t, "x", holdfast.WorkspaceSettings{})
	tree := func() (list []string) {
		_ = filepath.WalkDir(filepath.Dir(h.data), func(path string, _ fs.DirEntry, _ error) error {
			list = append(list, path)
			return nil
		})
		return list
	}
	before := tree()
	for _, bad := range []string{"../x", "..", "/x", "a/../b", `a\b`, "My_Proj", "x/", ".trash"} {
		id := holdfast.Slug(bad)
		_, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: bad})
		isKind(t, err, holdfast.KindInvalid, holdfast.Quote(bad))
		_, err = h.For(t.Context(), bad, "", "")
		isKind(t, err, holdfast.KindInvalid, holdfast.Quote(bad))
		_, err = h.store.Workspaces.AddWorkspace(t.Context(), workspaces.Record{Workspace: holdfast.Workspace{ID: id}})
		isKind(t, err, holdfast.KindInvalid, holdfast.Quote(bad))
		for what, err := range map[string]error{
			"get":    second(h.Get(t.Context(), id)),
			"update": second(h.Update(t.Context(), id, holdfast.UpdateWorkspace{})),
			"delete": second(h.Delete(t.Context(), id, true, false)),
		} {
			if !holdfast.IsKind(err, holdfast.KindNotFound) {
				t.Errorf("%s %q: %v", what, bad, err)
			}
		}
	}
	if after := tree(); !slices.Equal(after, before) {
		t.Errorf("files %q, before %q", after, before)
	}
}

func second[T any](_ T, err error) error { return err }

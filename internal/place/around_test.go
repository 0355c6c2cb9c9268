package place

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestWSR28_NoOtherWayToTheWorkspace: what of the tree is also in the workspace is masked in the tree.
func TestWSR28_NoOtherWayToTheWorkspace(t *testing.T) {
	for _, tc := range []struct{ around, tree, want string }{
		{"", "/a/b", ""},
		{"/a", "", ""},
		{"/a", "/a/b/c", "/tree/b/c"},
		{"/a", "/a/..b", "/tree/..b"},
		{"/a/b", "/a/b", "/tree"},
		{"/a/b/c", "/a/b", "/tree"},
		{"/a/b/c", "/a", "/tree"},
		{"/a/b", "/a/c", ""},
		{"/a/b", "/ab", ""},
		{"/a/b/c", "/a/b/d/e", ""},
	} {
		got := around(Scope{Around: tc.around, Tree: tc.tree}, wire.Walls{Masked: []string{"/x"}}).Masked
		want := []string{"/x"}
		if tc.want != "" {
			want = append(want, tc.want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

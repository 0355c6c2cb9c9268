package wire_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestWallsHash: equal walls have equal hashes whatever their order, every list counts,
// and no walls have none.
func TestWallsHash(t *testing.T) {
	t.Parallel()
	if h := (wire.Walls{KeepHome: true}).Hash(); h != "" {
		t.Errorf("no walls have hash %q", h)
	}
	a := wire.Walls{Masked: []string{"/b", "/a", "/b"}, Readable: [][]string{{"/y", "/x"}, {"/a"}}}
	b := wire.Walls{Masked: []string{"/a", "/b"}, Readable: [][]string{{"/a"}, {"/x", "/y"}, {"/a"}}}
	if a.Hash() != b.Hash() {
		t.Error("the order counts")
	}
	seen := map[string]string{}
	for name, w := range map[string]wire.Walls{
		"masked": {Masked: []string{"/a"}}, "directory": {Masked: []string{"/a/"}}, "read-only": {ReadOnly: []string{"/a"}}, "readable": {Readable: [][]string{{"/a"}}},
		"two lists": {Readable: [][]string{{"/a"}, {"/b"}}}, "one list": {Readable: [][]string{{"/a", "/b"}}}, "writable": {Writable: [][]string{{"/a"}}},
		"home": {Writable: [][]string{{"/a"}}, KeepHome: true}, "pattern": {Patterns: []string{"/a"}}, "write pattern": {WritePatterns: []string{"/a"}},
	} {
		h := w.Hash()
		if old, ok := seen[h]; ok || h == "" {
			t.Errorf("%s has the hash of %q", name, old)
		}
		seen[h] = name
	}
}

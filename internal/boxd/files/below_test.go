package files

import (
	"io"
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestReadSaysWhereTheFileLies: a read tells the path of the file in the workspace without symlinks, only if it is asked
// to, and only of files in the workspace.
func TestReadSaysWhereTheFileLies(t *testing.T) {
	b := newBox(t)
	b.put(t, "src/deep/f", "x")
	must(t, os.WriteFile(b.home+"/f", []byte("x"), 0o600))
	for link, to := range map[string]string{"link": "src/deep", "f": "src/deep/f", "out": b.home, "odd\xff": "src"} {
		must(t, os.Symlink(to, b.path(link)))
	}
	must(t, os.Mkdir(b.path("bad\xff"), 0o755))
	must(t, os.WriteFile(b.path("bad\xff/f"), []byte("x"), 0o600))
	for path, want := range map[string]string{
		"src/deep/f": "src/deep/f", "link/f": "src/deep/f", "f": "src/deep/f", "src/../link/f": "src/deep/f", b.ws + "/f": "src/deep/f",
		"out/f": "", "~/f": "", EncodeName("odd\xff/deep/f"): "src/deep/f", EncodeName("bad\xff/f"): "",
	} {
		for _, ask := range []bool{true, false} {
			ans, err := b.Read(wire.ReadRequest{Path: path, Where: ask}, io.Discard)
			must(t, err)
			if ask && ans.Below != want || !ask && ans.Below != "" {
				t.Errorf("%q lies at %q, want %q (asked: %v)", path, ans.Below, want, ask)
			}
		}
	}
}

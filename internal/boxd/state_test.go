package boxd

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTokenFileThatAPowerCutEmptied: the token is not flushed; whoever held an
// older one ended with the machine.
func TestTokenFileThatAPowerCutEmptied(t *testing.T) {
	for _, left := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, tokenFile), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := openState(dir)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := d.loadToken(); n != 0 || err != nil {
			t.Errorf("%q: token %d, %v", left, n, err)
		}
		if err := d.saveToken(7); err != nil {
			t.Fatal(err)
		}
		if n, err := d.loadToken(); n != 7 || err != nil {
			t.Errorf("%q: token %d, %v", left, n, err)
		}
	}
}

package boxd

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTokenFileThatAPowerCutEmptied: the token is not flushed; whoever held an
// older one ended with the machine.
func TestTokenFileThatAPowerCutEmptied(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, tokenFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.loadToken(); n != 0 || err != nil {
		t.Errorf("token %d, %v", n, err)
	}
	if err := d.saveToken(7); err != nil {
		t.Fatal(err)
	}
	if n, err := d.loadToken(); n != 7 || err != nil {
		t.Errorf("token %d, %v", n, err)
	}
}

package seal

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast"
)

func wantKind(t *testing.T, err error, kind holdfast.Kind, part string) {
	t.Helper()
	if err == nil || !holdfast.IsKind(err, kind) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v (kind %q), want kind %q and %q in it", err, holdfast.KindOf(err), kind, part)
	}
}

func TestKeyFileRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.key")
	write := func(content string, mode os.FileMode) {
		t.Helper()
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	key := strings.Repeat("ab", 32)
	for _, c := range []struct {
		content string
		mode    os.FileMode
		kind    holdfast.Kind
		part    string
	}{
		{key, 0o644, holdfast.KindDenied, "0644"},
		{key, 0o640, holdfast.KindDenied, "0640"},
		{"", 0o600, holdfast.KindInternal, "does not hold a key"},
		{key[:62], 0o600, holdfast.KindInternal, "does not hold a key"},
		{key[:62] + "zz", 0o600, holdfast.KindInternal, "does not hold a key"},
	} {
		write(c.content, c.mode)
		_, err := KeyFile(path, rand.Reader)
		wantKind(t, err, c.kind, c.part)
		if data, _ := os.ReadFile(path); string(data) != c.content {
			t.Error("a refused key file was changed")
		}
	}
	write(key, 0o600)
	if err := os.Symlink(path, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	_, err := KeyFile(filepath.Join(dir, "link"), rand.Reader)
	wantKind(t, err, holdfast.KindDenied, "not a regular file")
	_, err = KeyFile(filepath.Join(dir, "none", "audit.key"), rand.Reader)
	wantKind(t, err, holdfast.KindUnavailable, "no such file")
	_, err = KeyFile(filepath.Join(dir, "new.key"), iotest.ErrReader(os.ErrClosed))
	wantKind(t, err, holdfast.KindUnavailable, "closed")
	if _, err := os.Lstat(filepath.Join(dir, "new.key")); err == nil {
		t.Error("a key without randomness was made")
	}
}

// TestKeyMadeOnce: many that start at once end with one key.
func TestKeyMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.key")
	keys := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = KeyFile(path, rand.Reader); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range keys {
		if len(keys[i]) != keySize || !bytes.Equal(keys[i], keys[0]) {
			t.Errorf("start %d has another key", i)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v (%v)", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("besides the key there is %v", entries)
	}
}

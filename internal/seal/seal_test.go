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

func open(t *testing.T, path string) *Sealer {
	t.Helper()
	s, err := Open(path, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantKind(t *testing.T, err error, kind holdfast.Kind, part string) {
	t.Helper()
	if err == nil || !holdfast.IsKind(err, kind) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v (kind %q), want kind %q and %q in it", err, holdfast.KindOf(err), kind, part)
	}
}

func TestSealAndOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	s := open(t, path)
	for _, plain := range []string{"", "A=1", strings.Repeat("x", 100_000)} {
		sealed, err := s.Seal("session 1", []byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		if len(sealed) != len(plain)+29 || plain != "" && bytes.Contains(sealed, []byte(plain)) {
			t.Errorf("sealed %d bytes into %d", len(plain), len(sealed))
		}
		// A key read again opens what the first one sealed.
		got, err := open(t, path).Open("session 1", sealed)
		if err != nil || string(got) != plain {
			t.Errorf("opened %q (%v)", got, err)
		}
	}
	a, _ := s.Seal("c", []byte("same"))
	b, _ := s.Seal("c", []byte("same"))
	if bytes.Equal(a, b) {
		t.Error("two seals of one text are equal: the nonce is not fresh")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v (%v)", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("beside the key lies %v", entries)
	}
}

func TestSealRefusesWhatIsNotWhole(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "secret.key"))
	sealed, err := s.Seal("session 1", []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		_, err := s.Open("session 1", bad)
		wantKind(t, err, holdfast.KindInternal, `"session 1"`)
	}
	for n := range sealed {
		if _, err := s.Open("session 1", sealed[:n]); err == nil {
			t.Errorf("opened when cut to %d bytes", n)
		}
	}
	_, err = s.Open("session 1", append(sealed, 0))
	wantKind(t, err, holdfast.KindInternal, "damaged")
	_, err = s.Open("session 2", sealed)
	wantKind(t, err, holdfast.KindInternal, "session 2")
	other := open(t, filepath.Join(dir, "other.key"))
	_, err = other.Open("session 1", sealed)
	wantKind(t, err, holdfast.KindInternal, "another key")
}

func TestKeyFileRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret.key")
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
		_, err := Open(path, rand.Reader)
		wantKind(t, err, c.kind, c.part)
		if data, _ := os.ReadFile(path); string(data) != c.content {
			t.Error("a refused key file was changed")
		}
	}
	write(key, 0o600)
	if err := os.Symlink(path, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Join(dir, "link"), rand.Reader)
	wantKind(t, err, holdfast.KindDenied, "not a regular file")
	_, err = Open(filepath.Join(dir, "none", "secret.key"), rand.Reader)
	wantKind(t, err, holdfast.KindUnavailable, "no such file")
	_, err = Open(filepath.Join(dir, "new.key"), iotest.ErrReader(os.ErrClosed))
	wantKind(t, err, holdfast.KindUnavailable, "closed")
	if _, err := os.Lstat(filepath.Join(dir, "new.key")); err == nil {
		t.Error("a key without randomness was made")
	}
}

// TestKeyMadeOnce: many that start at once end with one key.
func TestKeyMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	sealed := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range sealed {
		wg.Go(func() {
			s, err := Open(path, rand.Reader)
			if err != nil {
				t.Error(err)
				return
			}
			if sealed[i], err = s.Seal("c", []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := open(t, path)
	for i := range sealed {
		if _, err := s.Open("c", sealed[i]); err != nil {
			t.Errorf("sealer %d had another key: %v", i, err)
		}
	}
}

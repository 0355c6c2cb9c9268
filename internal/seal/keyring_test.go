package seal

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func keyring(t *testing.T, path string, given ...string) *Keyring {
	t.Helper()
	k, err := OpenKeyring(path, given, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(t *testing.T, k *Keyring, context, plain string) []byte {
	t.Helper()
	out, err := k.Seal(context, []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func mustOpen(t *testing.T, k *Keyring, context, want string, from []byte) {
	t.Helper()
	if plain, err := k.Open(context, from); err != nil || string(plain) != want {
		t.Errorf("%q %v", plain, err)
	}
}

func TestEnvelopesOpenForTheirContextOnly(t *testing.T) {
	k := keyring(t, filepath.Join(t.TempDir(), "keys"))
	one, two := sealed(t, k, "a", "value"), sealed(t, k, "a", "value")
	if bytes.Equal(one, two) || bytes.Contains(one, []byte("value")) {
		t.Error("two envelopes are alike, or show what is in them")
	}
	mustOpen(t, k, "a", "value", one)
	for i := range one {
		bad := bytes.Clone(one)
		bad[i] ^= 1
		if plain, err := k.Open("a", bad); !holdfast.IsKind(err, holdfast.KindInternal) {
			t.Errorf("byte %d changed: %q %v", i, plain, err)
		}
		if plain, err := k.Open("a", one[:i]); !holdfast.IsKind(err, holdfast.KindInternal) {
			t.Errorf("cut at %d: %q %v", i, plain, err)
		}
	}
	if _, err := k.Open("b", one); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("another context: %v", err)
	}
	// The head of one and the value of another do not fit.
	if _, err := k.Open("a", append(bytes.Clone(one[:headSize]), two[headSize:]...)); err == nil {
		t.Error("two halves open")
	}
}

// A rotation may be cut off anywhere: what was sealed opens at the next start.
func TestRotationLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k := keyring(t, path)
	before, id := sealed(t, k, "a", "value"), k.KeyID()
	if err := k.Renew(); err != nil || k.KeyID() == id {
		t.Fatal(err)
	}
	again := keyring(t, path)
	mustOpen(t, again, "a", "value", before)
	after, err := again.Rewrap("a", before)
	if err != nil || bytes.Equal(before, after) || !bytes.Equal(before[headSize:], after[headSize:]) {
		t.Errorf("what was wrapped anew is another value: %v", err)
	}
	if err := again.Retire(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, again, "a", "value", before) // a value that was read before
	again = keyring(t, path)
	mustOpen(t, again, "a", "value", after)
	if _, err := again.Open("a", before); !holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(err.Error(), id) {
		t.Errorf("the former root key still opens: %v", err)
	}
	if _, err := again.Rewrap("b", after); err == nil {
		t.Error("it was wrapped for another context")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".secret-*"))
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Rotations that are cut off again and again never leave a file with too many keys to read.
func TestRotationsThatNeverFinishKeepTheFileReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	first := sealed(t, keyring(t, path), "a", "value")
	for range maxKeys + 1 {
		if err := keyring(t, path).Renew(); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, keyring(t, path), "a", "value", first)
}

func TestRootKeysMayBeGiven(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	one, two := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	k := keyring(t, path, one)
	env := sealed(t, k, "a", "value")
	both := keyring(t, path, two, one)
	mustOpen(t, both, "a", "value", env)
	if err := errors.Join(both.Renew(), both.Retire()); err != nil {
		t.Fatal(err)
	}
	wrapped, err := both.Rewrap("a", env)
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, keyring(t, path, two), "a", "value", wrapped)
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was made beside given keys")
	}
	for _, bad := range []string{"x", one[:62], one + "00", strings.Repeat("zz", 32)} {
		if _, err := OpenKeyring(path, []string{bad}, rand.Reader); !holdfast.IsKind(err, holdfast.KindInvalid) || len(bad) > 1 && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBadFilesOfRootKeysAreRefused(t *testing.T) {
	good := strings.Repeat("0a", 32) + "\n"
	for _, tc := range []struct {
		text string
		mode os.FileMode
		kind holdfast.Kind
	}{
		{good, 0o640, holdfast.KindDenied},
		{"", 0o600, holdfast.KindInternal},
		{good + "short\n", 0o600, holdfast.KindInternal},
		{strings.Repeat(good, maxKeys+1), 0o600, holdfast.KindInternal},
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKeyring(path, nil, rand.Reader); !holdfast.IsKind(err, tc.kind) {
			t.Errorf("%q %v: %v", tc.text, tc.mode, err)
		}
	}
}

//go:build linux

package testkit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
)

// TestClaudeIsThePinnedOne: a package that is not what claude.json says to the
// bit is never unpacked.
func TestClaudeIsThePinnedOne(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for _, name := range []string{"package/package.json", "package/claude"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(name)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = w.Close(), z.Close()
	path := filepath.Join(t.TempDir(), "x.tgz")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(packed.Bytes())
	right := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	to := t.TempDir()
	if err := unpackClaude(path, "sha512-"+base64.StdEncoding.EncodeToString(make([]byte, 64)), to); err == nil {
		t.Error("a package with another integrity was unpacked")
	}
	if entries, _ := os.ReadDir(to); len(entries) != 0 {
		t.Errorf("it left %v", entries)
	}
	if err := unpackClaude(path, right, to); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(to, "claude"))
	if err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", fi, err)
	}
}

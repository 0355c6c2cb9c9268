package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/durable"
)

// TestCreateKeepsTheFirst: an existing file stays, Replace takes its place, and a
// failed write leaves neither a file nor a temporary one.
func TestCreateKeepsTheFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "id")
	check := func(want string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil || string(b) != want {
			t.Errorf("the file holds %q, %v; want %q", b, err, want)
		}
		if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) > 0 {
			t.Errorf("left: %s", strings.Join(names, " "))
		}
	}
	if err := durable.Create(path, durable.Bytes([]byte("one"))); err != nil {
		t.Fatal(err)
	}
	if err := durable.Create(path, durable.Bytes([]byte("two"))); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
	check("one")
	if err := durable.Replace(path, durable.Bytes([]byte("two"))); err != nil {
		t.Fatal(err)
	}
	check("two")
	no := errors.New("no")
	for _, make := range []func(string, func(*os.File) error) error{durable.Create, durable.Replace} {
		if err := make(path, func(*os.File) error { return no }); !errors.Is(err, no) {
			t.Errorf("a failed write: %v", err)
		}
	}
	check("two")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestPublish: a stage gets the name, or stays as it is.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	stage, to := filepath.Join(dir, "stage"), filepath.Join(dir, "name")
	fill := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(stage, "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(stage, "a", "file"))
		if err == nil {
			err = durable.Write(f, durable.Bytes([]byte("content")))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if err := durable.Publish(stage, to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "a", "file")); err != nil || string(b) != "content" {
		t.Errorf("published: %q, %v", b, err)
	}
	fill()
	if err := durable.Publish(stage, to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := os.Stat(filepath.Join(stage, "a", "file")); err != nil {
		t.Errorf("the stage after an error: %v", err)
	}
	f, err := os.Create(filepath.Join(dir, "closed"))
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if err := durable.Write(f, func(*os.File) error { return no }); !errors.Is(err, no) || f.Close() == nil {
		t.Errorf("a failed write: %v; the file is open", err)
	}
}

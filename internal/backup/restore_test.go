package backup

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// looking calls look before each read.
type looking struct {
	io.Reader
	look func()
}

func (l looking) Read(b []byte) (int, error) {
	l.look()
	return l.Reader.Read(b[:1])
}

// TestAKilledRestoreIsCleanedUp: the next restore removes what a killed one left. Only one restore makes a directory at a
// time. No key is on the disk before the whole archive has been read.
func TestAKilledRestoreIsCleanedUp(t *testing.T) {
	var out bytes.Buffer
	if err := PutKeys(&out, "open", map[string][]byte{"secrets.key": []byte("the root key")}); err != nil {
		t.Fatal(err)
	}
	archive := append(out.Bytes(), written(t)...)
	dir := filepath.Join(t.TempDir(), "restored")
	stage := stageOf(dir)
	for _, name := range []string{"secrets.key", "agents/v1/x", "holdfast.db"} {
		path := filepath.Join(stage, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("of a killed restore"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	from := looking{bytes.NewReader(archive), func() {
		if reads++; reads == 1 {
			return // before anything else happened
		}
		if _, err := os.Lstat(filepath.Join(stage, "secrets.key")); err == nil {
			t.Fatal("a key is on the disk before the archive was read")
		}
	}}
	how := Restoring{Dir: dir, Passphrase: func() (string, error) { return "open", nil }}
	how.Check = func(at string, _ Summary) error {
		if at != stage {
			t.Errorf("the stage is %s", at)
		}
		if _, err := restore(t, archive, Restoring{Dir: dir}); !holdfast.IsKind(err, holdfast.KindConflict) || holdfast.HintOf(err) == "" {
			t.Errorf("a second restore meanwhile: %v", err)
		}
		return nil
	}
	if _, err := Restore(t.Context(), from, how); err != nil {
		t.Fatal(err)
	}
	want := restorable()
	want["secrets.key"] = "the root key"
	if got := found(t, dir); !maps.Equal(got, want) {
		t.Errorf("restored %q", got)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestAForeignStage: a restore changes nothing at the path of its stage if that is not a directory, or belongs to another user.
func TestAForeignStage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "restored")
	other := data(t, map[string]string{"kept": "kept"})
	if err := os.Symlink(other, stageOf(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(t, written(t), Restoring{Dir: dir}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("through a symlink: %v", err)
	}
	if got := found(t, other); len(got) != 1 {
		t.Errorf("it left %q", got)
	}
}

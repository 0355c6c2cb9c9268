package boxproc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// TestRecordsOfAnotherOwner: a record that came with a copy is removed, one of a box
// that holds this directory becomes ours, and an unreadable one stays for the box's
// next start.
func TestRecordsOfAnotherOwner(t *testing.T) {
	d := open(t)
	_, r := start(t, d)
	files := map[string]string{
		boxproc.Key("w-foreign") + ".json": `{"box":"w-foreign","owner":"ffffffffffffffff","pid":1}`,
		boxproc.Key("w-broken") + ".json":  `{"box":`,
		"0000000000000000.json":            fmt.Sprintf(`{"box":"w-elsewhere","owner":%q}`, d.Owner()),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(d.Path(), name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other, err := boxproc.Open(d.Path(), "00000000000000ff")
	if err != nil {
		t.Fatal(err)
	}
	got, err := other.List()
	if err != nil || len(got) != 1 || got[0].Box != box || got[0].Owner != other.Owner() || !alive(t, other, r) {
		t.Fatalf("listed %+v, %v", got, err)
	}
	if _, err := other.Sweep(0); err != nil {
		t.Fatal(err)
	}
	for name := range files {
		_, err := os.Stat(filepath.Join(d.Path(), name))
		if foreign := name == boxproc.Key("w-foreign")+".json"; os.IsNotExist(err) != foreign {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHZ20_CopyDoesNotHoldTheBox: in a copy of the directory, including its records,
// the recorded process belongs to the original: it is neither found nor signalled. In a
// moved directory it is ours.
func TestHZ20_CopyDoesNotHoldTheBox(t *testing.T) {
	d := open(t)
	_, r := start(t, d)
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", d.Path(), copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := boxproc.Open(copied, owner)
	if err != nil {
		t.Fatal(err)
	}
	if alive(t, c, r) || !foreign(t, c, r) {
		t.Error("the copy takes the box for its own")
	}
	if _, err := c.Find(r); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("found in the copy: %v", err)
	}
	if _, err := c.Dial(t.Context(), box); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("dialled in the copy: %v", err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(d.Path(), moved); err != nil {
		t.Fatal(err)
	}
	m, err := boxproc.Open(moved, owner)
	if err != nil {
		t.Fatal(err)
	}
	if !alive(t, m, r) || foreign(t, m, r) {
		t.Error("the moved directory does not know its box")
	}
	if got := speak(t, m); got != "w-demo\n" {
		t.Errorf("boxd said %q", got)
	}
}

func foreign(t *testing.T, d *boxproc.Dir, r boxproc.Record) bool {
	t.Helper()
	is, err := d.Foreign(r)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

package lifecycle

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func openID(t *testing.T, data string, accept bool) Identity {
	t.Helper()
	id, err := OpenIdentity(data, rand.Reader, accept)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestHZ20_IdentityFollowsItsInode: a moved directory is the same, a copy is another
// one until it is accepted, and a reused inode number is another inode.
func TestHZ20_IdentityFollowsItsInode(t *testing.T) {
	base := t.TempDir()
	data, moved, copied := filepath.Join(base, "data"), filepath.Join(base, "moved"), filepath.Join(base, "copied")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	first := openID(t, data, false)
	if !first.Made || first.Copy || !validOwner(first.Owner) {
		t.Fatalf("the first: %+v", first)
	}
	for _, accept := range []bool{false, true} {
		if id := openID(t, data, accept); id.Made || id.Copy || id.Owner != first.Owner {
			t.Errorf("opened again: %+v", id)
		}
	}
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	if id := openID(t, moved, false); id.Copy || id.Owner != first.Owner {
		t.Errorf("moved: %+v", id)
	}
	if out, err := exec.Command("cp", "-a", moved, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range 2 {
		if id := openID(t, copied, false); !id.Copy || id.Made {
			t.Errorf("copied: %+v", id)
		}
	}
	own := openID(t, copied, true)
	if own.Copy || !own.Made || own.Owner == first.Owner {
		t.Errorf("accepted: %+v", own)
	}
	if id := openID(t, copied, false); id.Copy || id.Owner != own.Owner {
		t.Errorf("after it was accepted: %+v", id)
	}

	if own.Inode.Birth == 0 {
		t.Skip("the file system knows no birth of inodes")
	}
	own.Inode.Birth--
	b, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	// In place: the inode stays.
	if err := os.WriteFile(filepath.Join(copied, identityFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if id := openID(t, copied, false); !id.Copy {
		t.Errorf("the number of an inode was used again: %+v", id)
	}
}

// TestTornIdentity: an empty or torn identity without records of boxes counts as
// missing; with records the directory is an incomplete copy.
func TestTornIdentity(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "zeros": "\x00\x00\x00", "half": `{"owner":"01`, "other": `{"owner":"../../etc","inode":{"number":1}}`} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			write := func(path, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(filepath.Join(data, identityFile), text)
			id := openID(t, data, false)
			if !id.Made || id.Copy {
				t.Errorf("without records: %+v", id)
			}
			if again := openID(t, data, false); again.Made || again.Owner != id.Owner {
				t.Errorf("opened again: %+v", again)
			}
			write(filepath.Join(data, identityFile), text)
			write(filepath.Join(data, "run", "host", "0123456789abcdef.json"), `{}`)
			if id := openID(t, data, false); !id.Copy || id.Made {
				t.Errorf("with records: %+v", id)
			}
			if id := openID(t, data, true); id.Copy || !id.Made {
				t.Errorf("accepted: %+v", id)
			}
		})
	}
}

// TestMarkRestored: a restored directory is a copy until it is accepted.
func TestMarkRestored(t *testing.T) {
	data := t.TempDir()
	if err := MarkRestored(data, rand.Reader); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if id := openID(t, data, false); !id.Copy || id.Made {
			t.Errorf("%+v", id)
		}
	}
	if id := openID(t, data, true); id.Copy || !id.Made {
		t.Errorf("accepted: %+v", id)
	}
	if id := openID(t, data, false); id.Copy {
		t.Errorf("opened again: %+v", id)
	}
}

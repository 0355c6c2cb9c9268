package lifecycle

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestOwnerToken(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	if _, err := ReadToken(path); !holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.HintOf(err) == "" {
		t.Errorf("without a file: %v", err)
	}
	token, err := OwnerToken(path, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(token, "hf_") || len(token) != 46 {
		t.Errorf("the token %q has not the form hf_ and 43 characters", token)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	again, err := OwnerToken(path, strings.NewReader(""))
	if err != nil || again != token {
		t.Errorf("the second start got %q, %v", again, err)
	}
	if read, err := ReadToken(path); err != nil || read != token {
		t.Errorf("a client reads %q, %v", read, err)
	}
	other, err := OwnerToken(filepath.Join(dir, "other"), rand.Reader)
	if err != nil || other == token {
		t.Errorf("two tokens are the same, or %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestOwnerTokenRefusals(t *testing.T) {
	good := "hf_" + strings.Repeat("A", 43)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		kind holdfast.Kind
	}{
		"group can read":  {good, 0o640, holdfast.KindDenied},
		"all can read":    {good, 0o604, holdfast.KindDenied},
		"group can write": {good, 0o620, holdfast.KindDenied},
		"empty":           {"", 0o600, holdfast.KindInvalid},
		"half":            {good[:20], 0o600, holdfast.KindInvalid},
		"long":            {good + "A", 0o600, holdfast.KindInvalid},
		"prefix":          {"xx_" + strings.Repeat("A", 43), 0o600, holdfast.KindInvalid},
		"alphabet":        {"hf_" + strings.Repeat("!", 43), 0o600, holdfast.KindInvalid},
	} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		token, err := OwnerToken(path, rand.Reader)
		if token != "" || !holdfast.IsKind(err, c.kind) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %q, %v", name, token, err)
		}
		if c.text != "" && err != nil && strings.Contains(err.Error()+holdfast.HintOf(err), c.text) {
			t.Errorf("%s: the refusal shows the secret: %v", name, err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != c.text {
			t.Errorf("%s: the file was changed to %q, %v", name, data, err)
		}
	}
}

func TestOwnerTokenIsNoLinkNorDirectory(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("hf_"+strings.Repeat("A", 43)), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, t.TempDir()} {
		if _, err := OwnerToken(path, rand.Reader); !holdfast.IsKind(err, holdfast.KindDenied) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestOwnerTokenFailsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	for name, r := range map[string]io.Reader{"none": strings.NewReader(""), "too little": bytes.NewReader(make([]byte, 31))} {
		if _, err := OwnerToken(path, r); !holdfast.IsKind(err, holdfast.KindInternal) {
			t.Errorf("randomness %s: %v", name, err)
		}
	}
	if _, err := OwnerToken(filepath.Join(dir, "missing", "token"), rand.Reader); !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
		t.Errorf("a missing directory: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

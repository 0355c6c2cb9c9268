package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// holds counts the copies of a text in the files of a directory.
func holds(t *testing.T, dir, text string) (n int) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(bytes.ToLower(b), []byte(text))
	}
	return n
}

// TestPurgedTextIsGone: no file keeps a word of a deleted session, and the database
// shrinks.
func TestPurgedTextIsGone(t *testing.T) {
	const marker = "zqxmarkerzqx"
	dir := t.TempDir()
	path := filepath.Join(dir, "holdfast.db")
	s := openAt(t, Config{Path: path})
	for i := range 40 {
		c := creation(testID(i))
		if i > 0 {
			c.Create.Title = "about " + marker
			c.Data[0] = []byte(`{"agent":"default","trust":"untrusted","title":"about ` + marker + `"}`)
		}
		if _, err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"content":"some text %s"}`, strings.Repeat("words ", 500))
		if i > 0 {
			text = fmt.Sprintf(`{"content":"%s %s"}`, marker, strings.Repeat("words ", 500))
		}
		for range 10 {
			if _, err := s.Commit(t.Context(), appending(testID(i), []byte(text), 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Index.Settle(t.Context(), 10*time.Second)
	if _, err := plain(t, path).ExecContext(t.Context(), `PRAGMA wal_checkpoint(PASSIVE)`); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if holds(t, dir, marker) < 100 {
		t.Fatal("the marker is not in the files")
	}
	// From before a migration.
	if err := os.WriteFile(path+".schema-20", []byte(marker), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 40; i++ {
		c := appending(testID(i), nil, 0)
		c.Status = []holdfast.Status{holdfast.StatusEnded}
		if _, err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteSession(t.Context(), testID(i)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "no copy of the marker is left", func() bool { return holds(t, dir, marker) == 0 })
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if after.Size() > before.Size()/2 {
		t.Errorf("the database has %d bytes, it had %d", after.Size(), before.Size())
	}
	if got, err := s.Events(t.Context(), testID(0), 0, 100); err != nil || len(got) != 11 {
		t.Errorf("the session that stays has %d events, %v", len(got), err)
	}
	if v, err := Verify(t.Context(), path); err != nil || len(v.Problems) > 0 {
		t.Errorf("%+v %v", v, err)
	}
}

// TestPurgedWordsOfALargeIndexAreGone: also where one step of the clean-up does not reach
// the words of the deleted session, because those of others come before them.
func TestPurgedWordsOfALargeIndexAreGone(t *testing.T) {
	const marker = "zqxmarkerzqx"
	dir := t.TempDir()
	s := openAt(t, Config{Path: filepath.Join(dir, "holdfast.db")})
	for i := range 2 {
		if _, err := s.Commit(t.Context(), creation(testID(i))); err != nil {
			t.Fatal(err)
		}
		for n := range 40 {
			text := marker
			if i == 0 {
				text = manyWords(n)
			}
			if _, err := s.Commit(t.Context(), appending(testID(i), fmt.Appendf(nil, `{"content":%q}`, text), 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Index.Settle(t.Context(), 10*time.Second)
	if holds(t, dir, marker) == 0 {
		t.Fatal("the marker is not in the files")
	}
	c := appending(testID(1), nil, 0)
	c.Status = []holdfast.Status{holdfast.StatusEnded}
	if _, err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSession(t.Context(), testID(1)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "no copy of the marker is left", func() bool { return holds(t, dir, marker) == 0 })
}

// manyWords is a text of words that no other number has and that come before the marker
// in the index.
func manyWords(n int) string {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "a%dof%d ", i, n)
	}
	return b.String()
}

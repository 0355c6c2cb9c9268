package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// places are the files below a directory that hold a text in their name or content.
func places(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // gone meanwhile
			}
			return err
		}
		if strings.Contains(d.Name(), text) {
			found = append(found, path+" (name)")
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestPurgeLeavesNoText: what a purged session said, called itself, gave to tools, got
// from them and wrote is nowhere below the data directory of a real server, neither
// then nor after a restart, and the database file gets smaller.
func TestPurgeLeavesNoText(t *testing.T) {
	data := testkit.BaseDir(t)
	p := local(t, data)
	const mark = "xq7marker"
	var ids []holdfast.SessionID
	for n := range 3 {
		s, err := p.CreateSession(t.Context(), holdfast.CreateSession{
			Mode: "bypassPermissions", Title: mark + "title", Tags: []string{mark + "tag"}, Env: map[string]string{"M": mark + "env"},
		}, fmt.Sprintf("%skey%d", mark, n))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
		for range 4 {
			big := strings.Repeat(mark+"message ", 20_000)
			sent, err := p.Send(t.Context(), s.ID, holdfast.SendMessage{Text: fmt.Sprintf(
				`<script>[{"tool":"Bash","input":{"command":"echo %soutput; echo %scontent > %sname"}},{"say":"%ssaid"}]</script>%s`, mark, mark, mark, mark, big)})
			if err != nil {
				t.Fatal(err)
			}
			p.completed(s.ID, sent.Turn.ID)
		}
	}
	other := p.session()
	if _, err := p.WriteFile(t.Context(), other, "kept", strings.NewReader("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found := places(t, data, mark); len(found) < 3 {
		t.Fatalf("the text is only in %v", found)
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(data, "holdfast.db"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	full := size()
	p = local(t, data)
	for _, id := range ids {
		if err := p.DeleteSession(t.Context(), id, holdfast.EndSession{Purge: true}); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	testkit.Eventually(t, "the text is gone", func() bool {
		left = places(t, data, mark)
		return len(left) == 0
	})
	testkit.Eventually(t, "the file is smaller", func() bool { return size() < full/2 })
	p.signal(syscall.SIGTERM)
	p.wait()
	p = local(t, data)
	if left := places(t, data, mark); len(left) > 0 {
		t.Errorf("after a restart the text is in %v", left)
	}
	if got := p.file(other, "kept"); got == "" {
		t.Error("another session lost its file")
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

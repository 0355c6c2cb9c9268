package engine_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// archive is a tar archive of files, each with its text.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestImportIsWholeOrAbsent: until all files of its source are there, a session takes no
// message; an archive that is cut off leaves none of them, and may be sent again.
//
// FH-14.
func TestImportIsWholeOrAbsent(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{Source: "directory /home/me/project"})
	refuse := func() {
		t.Helper()
		_, err := m.Send(t.Context(), id, holdfast.SendMessage{Text: "hello"})
		m.wantKind(err, holdfast.KindConflict)
		if !strings.Contains(err.Error(), `"directory /home/me/project" into session `) {
			t.Error(err)
		}
	}
	refuse()
	whole := archive(t, "a.txt", "text of a\n", "b.txt", strings.Repeat("b", 10_000))
	for name, cut := range map[string]io.Reader{
		"cut off": bytes.NewReader(whole[:len(whole)/2]),
		"broken":  io.MultiReader(bytes.NewReader(whole[:2000]), broken{}),
		"hostile": bytes.NewReader(archive(t, "../out", "x")),
	} {
		if _, err := m.Import(t.Context(), id, cut); err == nil {
			t.Errorf("%s: no error", name)
		}
		refuse()
		// What of it had arrived goes behind the answer. CLAUDE.md is the agent's.
		testkit.Eventually(t, name+" leaves nothing", func() bool { return string(m.exec(id, "ls").Stdout) == "CLAUDE.md\n" })
	}
	done, err := m.Import(t.Context(), id, bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	if s := done.Session.Source; s == nil || !s.Complete || s.Start != "" || done.NoStart == "" || done.Copied.Files != 2 {
		t.Errorf("%+v, source %+v", done, s)
	}
	if got := m.read(id, "a.txt"); got != "text of a\n" {
		t.Errorf("a.txt holds %q", got)
	}
	_, err = m.Import(t.Context(), id, bytes.NewReader(whole))
	m.wantKind(err, holdfast.KindConflict)
	if turn := m.send(id, "hello"); turn.ID == "" {
		t.Error("no turn")
	}
	_, err = m.Diff(t.Context(), id, holdfast.DiffPatch, io.Discard)
	m.wantKind(err, holdfast.KindConflict)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the line broke") }

// TestImportsAreAskedFor: a session without a source takes none, and a second import waits
// for no first one.
func TestImportsAreAskedFor(t *testing.T) {
	m := newMachine(t, nil)
	_, err := m.Import(t.Context(), m.create(holdfast.CreateSession{}), bytes.NewReader(archive(t)))
	m.wantKind(err, holdfast.KindConflict)
	_, _, err = m.Create(t.Context(), holdfast.CreateSession{Source: strings.Repeat("x", 5001)}, "")
	m.wantKind(err, holdfast.KindInvalid)

	id := m.create(holdfast.CreateSession{Source: "somewhere"})
	from, to := io.Pipe()
	first := make(chan error, 1)
	go func() {
		_, err := m.Import(t.Context(), id, from)
		first <- err
	}()
	whole := archive(t, "a.txt", "a")
	if _, err := to.Write(whole[:512]); err != nil { // it is under way once this is taken
		t.Fatal(err)
	}
	_, err = m.Import(t.Context(), id, bytes.NewReader(whole))
	m.wantKind(err, holdfast.KindConflict)
	if _, err := to.Write(whole[512:]); err != nil {
		t.Fatal(err)
	}
	_ = to.Close()
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestTreesGoInAndOut: a directory that was put comes back as it was, and only what is there.
func TestTreesGoInAndOut(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	sum, err := m.UnpackTree(t.Context(), id, holdfast.CopyTo{Path: "dir"}, bytes.NewReader(archive(t, "a", "text of a")))
	if err != nil || sum.Files != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	var out bytes.Buffer
	if sum, err = m.PackTree(t.Context(), id, "dir", &out); err != nil || sum.Files != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	r := tar.NewReader(&out)
	found := ""
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		found += h.Name + "=" + string(text) + ";"
	}
	if !strings.Contains(found, "a=text of a;") {
		t.Errorf("it holds %s", found)
	}
	_, err = m.PackTree(t.Context(), id, "missing", io.Discard)
	m.wantKind(err, holdfast.KindNotFound)
	_, err = m.Diff(t.Context(), "00000000-0000-7000-8000-000000000000", holdfast.DiffStat, io.Discard)
	m.wantKind(err, holdfast.KindNotFound)
}

// TestCopiesAreBounded: by the server's limit, and one that is over it changes nothing.
//
// FH-18.
func TestCopiesAreBounded(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.set = func(c *engine.Config) { c.MaxCopy = 100 } })
	id := m.create(holdfast.CreateSession{})
	_, err := m.UnpackTree(t.Context(), id, holdfast.CopyTo{Path: "dir"}, bytes.NewReader(archive(t, "a", strings.Repeat("a", 101))))
	m.wantKind(err, holdfast.KindTooLarge)
	if res := m.exec(id, "ls"); string(res.Stdout) != "CLAUDE.md\n" {
		t.Errorf("it left %s", res.Stdout)
	}
	if _, err := m.UnpackTree(t.Context(), id, holdfast.CopyTo{Path: "dir"}, bytes.NewReader(archive(t, "a", strings.Repeat("a", 100)))); err != nil {
		t.Error(err)
	}
}

package direct_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is a session with a box of the mem driver.
type one struct {
	box *sandbox.Box
	// commands counts the commands that run.
	commands int
	// source is where the session's first files come from.
	source   *holdfast.Source
	imported *holdfast.Copied
}

func newOne(t *testing.T) (*one, *direct.Work) {
	t.Helper()
	d := mem.New(mem.Config{})
	spec := sandbox.Spec{Box: "w-one", Dir: t.TempDir()}
	if _, err := d.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	conn, err := d.Connect(t.Context(), spec.Box)
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Dial(t.Context(), spec.Box, conn, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = box.Close()
		_ = d.Remove(context.WithoutCancel(t.Context()), spec.Box)
	})
	s := &one{box: box.Of("one")}
	return s, direct.New(s, 1000)
}

func (s *one) InBox(ctx context.Context, _ holdfast.SessionID, work func(context.Context, *sandbox.Box) error) error {
	return work(ctx, s.box)
}

func (s *one) Command(context.Context, holdfast.SessionID) (func(), error) {
	s.commands++
	return func() { s.commands-- }, nil
}

func (s *one) Call() (holdfast.CallID, error) {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	return holdfast.CallID(id), err
}

func (s *one) Session(context.Context, holdfast.SessionID) (holdfast.Session, error) {
	return holdfast.Session{ID: "one", Source: s.source}, nil
}

func (s *one) Imported(_ context.Context, _ holdfast.SessionID, files holdfast.Copied, _ string) (holdfast.Session, error) {
	s.imported = &files
	return holdfast.Session{ID: "one"}, nil
}

// TestWorkLeavesNothing: work of each kind is done, and the box holds no call afterwards.
func TestWorkLeavesNothing(t *testing.T) {
	s, w := newOne(t)
	if _, err := w.WriteFile(t.Context(), "one", "dir/file", []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	res, err := w.Exec(t.Context(), "one", holdfast.ExecRequest{Command: "cat dir/file; cat; echo $MINE >&2; exit 3", Stdin: []byte("typed\n"), Env: map[string]string{"MINE": "x"}}, nil, nil)
	if err != nil || string(res.Stdout) != "text\ntyped\n" || string(res.Stderr) != "x\n" || res.ExitCode != 3 || res.Truncated {
		t.Fatalf("%+v, %v", res, err)
	}
	list, err := w.ListFiles(t.Context(), "one", "dir")
	if err != nil || len(list.Entries) != 1 || list.Entries[0].Size != 5 {
		t.Fatalf("%+v, %v", list, err)
	}
	var read bytes.Buffer
	if err := w.ReadFile(t.Context(), "one", "dir/file", &read); err != nil || read.String() != "text\n" {
		t.Fatalf("%q, %v", read.String(), err)
	}
	if err := w.RemoveFile(t.Context(), "one", "dir", true); err != nil {
		t.Fatal(err)
	}
	if s.commands != 0 {
		t.Errorf("%d commands are said to run", s.commands)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		held, err := s.box.Calls(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the box holds %+v, %v", held, err)
		}
		if len(held) == 0 {
			return
		}
	}
}

// TestRefusedWork names what is wrong before anything is done.
func TestRefusedWork(t *testing.T) {
	_, w := newOne(t)
	for name, req := range map[string]holdfast.ExecRequest{
		"nothing":  {},
		"both":     {Command: "true", Argv: []string{"true"}},
		"NUL":      {Command: "true\x00"},
		"timeout":  {Command: "true", TimeoutMS: -1},
		"ours":     {Command: "true", Env: map[string]string{"HOLDFAST_X": "1"}},
		"bad name": {Command: "true", Env: map[string]string{"A-B": "1"}},
	} {
		if _, err := w.Exec(t.Context(), "one", req, nil, nil); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Diff(t.Context(), "one", holdfast.DiffPatch, io.Discard); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a diff against nothing: %v", err)
	}
}

// TestImportIsBounded: an import beyond the bound is refused, nothing of it is said to be there,
// and the session can be imported into again.
func TestImportIsBounded(t *testing.T) {
	s, w := newOne(t)
	s.source = &holdfast.Source{From: "dir"}
	archive := func(size int) io.Reader {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		err := tw.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(size)})
		if err == nil {
			_, err = tw.Write(make([]byte, size))
		}
		if err == nil {
			err = tw.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return &buf
	}
	if _, err := w.Import(t.Context(), "one", archive(1001)); !holdfast.IsKind(err, holdfast.KindTooLarge) || s.imported != nil {
		t.Fatalf("%v, %+v", err, s.imported)
	}
	out, err := w.Import(t.Context(), "one", archive(1000))
	if err != nil || s.imported == nil || s.imported.Bytes != 1000 || out.NoStart == "" {
		t.Fatalf("%+v, %v, %+v", out, err, s.imported)
	}
}

// TestWhoImports: only a session that waits for its first files, one import at a time.
func TestWhoImports(t *testing.T) {
	s, w := newOne(t)
	for name, source := range map[string]*holdfast.Source{"none": nil, "complete": {From: "dir", Complete: true}} {
		s.source = source
		if _, err := w.Import(t.Context(), "one", strings.NewReader("")); !holdfast.IsKind(err, holdfast.KindConflict) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.source = &holdfast.Source{From: "dir"}
	r, hold := io.Pipe()
	first := make(chan error, 1)
	go func() {
		_, err := w.Import(t.Context(), "one", r)
		first <- err
	}()
	if _, err := hold.Write(make([]byte, 1)); err != nil { // the first import reads its archive
		t.Fatal(err)
	}
	if _, err := w.Import(t.Context(), "one", strings.NewReader("")); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a second import: %v", err)
	}
	_ = hold.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-first; err == nil {
		t.Error("half an archive was imported")
	}
	if _, err := w.Import(t.Context(), "one", strings.NewReader("")); holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("after the first import has failed: %v", err)
	}
}

// TestDiffWithoutRepository: if git cannot make the difference, the hint names the way without git.
func TestDiffWithoutRepository(t *testing.T) {
	s, w := newOne(t)
	s.source = &holdfast.Source{Start: strings.Repeat("a", 40)}
	_, err := w.Diff(t.Context(), "one", holdfast.DiffPatch, io.Discard)
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(holdfast.HintOf(err), "holdfast session diff one --from start; ") {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
}

package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-run/holdfast"
)

// data makes a data directory with files, by name.
func data(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var stored = map[string]string{
	"holdfast.db": "not copied from here", "snapshots.key": "its key", "snapshots/aa.v1.pack": "pack a", "snapshots/bb.v1.pack": strings.Repeat("pack b", 1000),
	"snapshots/.cc.tmp": "being written", "snapshots/dd.v1.pack": "a spare file", "snapshots/.dd.v1.pack.tmp": "a spare file", "agents/v1/manifest.json": "[]", "agents/v1/files/CLAUDE.md": "be kind", "agents/v1/files/.mcp.json": "{}", "agents/.new-1/files/x": "being made",
	"agents/v1/files/.claude/skills/a/SKILL.md": "how to", "agents/v1/files/.new-2/x": "an agent's", "agents/v1/files/a/plugin-x/y": "an agent's",
	"agents/plugin-1/.claude-plugin/plugin.json": "made again", "agents/plugin-1/skills/a/SKILL.md": "made again",
	"secrets.key": "secret", "audit.key": "secret", "token": "secret", "sessions/s/workspace/a": "live",
}

// restorable are the files that an archive of stored has.
func restorable() map[string]string {
	want := maps.Clone(stored)
	want["holdfast.db"] = "the copy"
	for name := range want {
		if strings.Contains(name, ".tmp") || stored[path.Join(path.Dir(name), "."+path.Base(name)+".tmp")] != "" || strings.HasPrefix(name, "agents/.new-") || strings.HasPrefix(name, "agents/plugin-") || strings.HasPrefix(name, "sessions") || slices.Contains([]string{"secrets.key", "audit.key", "token"}, name) {
			delete(want, name)
		}
	}
	return want
}

func sourceOf(dir string) Source {
	return Source{
		Data: dir, Release: "v1", Clock: time.Now,
		Settle:   func(context.Context) ([]holdfast.SessionID, error) { return []holdfast.SessionID{"s"}, nil },
		Database: func(_ context.Context, path string) error { return os.WriteFile(path, []byte("the copy"), 0o644) },
		Paused:   func(fn func() error) error { return fn() },
	}
}

func writer(t testing.TB, src Source) *Writer {
	t.Helper()
	w, err := NewWriter(src)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// written returns an archive of stored.
func written(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := writer(t, sourceOf(data(t, stored))).Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func found(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		got[name] = string(b)
		if info, _ := d.Info(); info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may read %s: %s", name, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func restore(t testing.TB, archive []byte, how Restoring) (Summary, error) {
	if how.Dir == "" {
		how.Dir = filepath.Join(t.TempDir(), "restored")
	}
	if how.Check == nil {
		how.Check = func(string, Summary) error { return nil }
	}
	return Restore(t.Context(), bytes.NewReader(archive), how)
}

// TestRoundTrip: an archive restores the copy of the database, the packs, the agents and the key of the packs, and
// nothing else; the writer leaves nothing.
func TestRoundTrip(t *testing.T) {
	from := data(t, stored)
	w := writer(t, sourceOf(from))
	var out bytes.Buffer
	if err := w.Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(w.stage()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the writer left %s: %v", w.stage(), err)
	}
	dir := filepath.Join(t.TempDir(), "new", "restored")
	checked := ""
	s, err := restore(t, out.Bytes(), Restoring{Dir: dir, Check: func(dir string, _ Summary) error { checked = dir; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if got := found(t, dir); !maps.Equal(got, restorable()) {
		t.Errorf("restored %q", slices.Sorted(maps.Keys(got)))
	}
	if s.Release != "v1" || s.Keys || len(s.Files) != len(restorable()) || !slices.Equal(s.Behind, []holdfast.SessionID{"s"}) || checked == "" || checked == dir {
		t.Errorf("%+v, checked %s", s, checked)
	}
	if _, err := restore(t, out.Bytes(), Restoring{Dir: dir}); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a second restore into the same directory: %v", err)
	}
}

// TestPluginDirectories: plugin directories, which an archive of an older release has, are not restored: files of them
// are missing there, and the users of boxes could not read them.
func TestPluginDirectories(t *testing.T) {
	var out bytes.Buffer
	a, err := newArchive(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	from := data(t, stored)
	err = errors.Join(
		a.addJSON(headName, Head{Version: version}), a.addFile(databaseName, filepath.Join(from, databaseName)),
		a.addFile("agents/plugin-1/skills/a/SKILL.md", filepath.Join(from, "agents/plugin-1/skills/a/SKILL.md")),
	)
	if err = errors.Join(err, a.addJSON(endName, Manifest{Files: a.files}), a.close()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := restore(t, out.Bytes(), Restoring{Dir: dir}); err != nil || !maps.Equal(found(t, dir), map[string]string{databaseName: stored[databaseName]}) {
		t.Errorf("%v, %q", err, found(t, dir))
	}
}

// TestDamage: an archive that was cut, or in which any byte was changed, is refused, and leaves nothing. A byte of which the
// change has no effect is allowed, such as one in a padding that is not read.
func TestDamage(t *testing.T) {
	whole := written(t)
	refused := func(what string, archive []byte) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "restored")
		_, err := restore(t, archive, Restoring{Dir: dir})
		if err == nil {
			if got := found(t, dir); !maps.Equal(got, restorable()) {
				t.Errorf("%s: restored other files", what)
			}
			return
		}
		if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
		if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 0 {
			t.Errorf("%s: it left %v", what, left)
		}
	}
	for n := range len(whole) {
		if _, err := restore(t, whole[:n], Restoring{}); err == nil {
			t.Errorf("cut at %d of %d: no error", n, len(whole))
		}
		flipped := slices.Clone(whole)
		flipped[n] ^= 1
		refused("changed", flipped)
	}
	refused("more behind it", append(slices.Clone(whole), whole...))
}

// TestHostileArchives: entries that no writer makes are refused.
func TestHostileArchives(t *testing.T) {
	head, _ := json.Marshal(Head{Version: version})
	end, _ := json.Marshal(Manifest{})
	for what, entries := range map[string][]tar.Header{
		"an absolute path":      {{Name: "/etc/passwd"}},
		"a path that leads out": {{Name: "agents/../../x"}},
		"a key in the clear":    {{Name: "secrets.key"}},
		"an unknown file":       {{Name: "config.yaml"}},
		"no pack":               {{Name: "snapshots/x"}},
		"a link":                {{Name: "agents/x", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
		"the same file twice":   {{Name: databaseName}, {Name: databaseName}},
		"a file in a file":      {{Name: "agents/x"}, {Name: "agents/x/y"}},
		"no database":           {},
	} {
		var out bytes.Buffer
		z, _ := zstd.NewWriter(&out)
		w := tar.NewWriter(z)
		put := func(h tar.Header, b []byte) {
			h.Mode, h.Size = 0o600, int64(len(b))
			_ = w.WriteHeader(&h)
			_, _ = w.Write(b)
		}
		put(tar.Header{Name: headName}, head)
		for _, h := range entries {
			put(h, nil)
		}
		put(tar.Header{Name: endName}, end)
		_ = errors.Join(w.Close(), z.Close())
		dir := filepath.Join(t.TempDir(), "restored")
		if _, err := restore(t, out.Bytes(), Restoring{Dir: dir}); err == nil {
			t.Errorf("%s: no error", what)
		}
		if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 0 {
			t.Errorf("%s: it left %v", what, left)
		}
	}
}

// hostile returns an archive with a head, a database and a manifest of any content.
func hostile(t *testing.T, head, manifest string) []byte {
	t.Helper()
	var out bytes.Buffer
	a, err := newArchive(t.Context(), &out)
	for _, e := range [][2]string{{headName, head}, {databaseName, "the copy"}, {endName, manifest}} {
		err = errors.Join(err, a.add(e[0], 0o600, int64(len(e[1])), strings.NewReader(e[1])))
	}
	if err = errors.Join(err, a.close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestSmallArchivesTakeLittleMemory: a few bytes that unpack to a long head or manifest are refused before they take memory.
func TestSmallArchivesTakeLittleMemory(t *testing.T) {
	head := `{"version":1}`
	for what, archive := range map[string][]byte{
		"many files":         hostile(t, head, `{"files":[`+strings.Repeat("{},", 1<<20)+"{}]}"),
		"a long manifest":    hostile(t, head, `{"files":[`+strings.Repeat(" ", 17<<20)+"]}"),
		"many sessions":      hostile(t, head, `{"behind":[`+strings.Repeat(`"",`, 1<<20)+`""],"files":[]}`),
		"a long head":        hostile(t, strings.Repeat(" ", 1<<20)+head, "{}"),
		"no list":            hostile(t, head, `{"files":{}}`),
		"no object":          hostile(t, head, `[]`),
		"a list without end": hostile(t, head, `{"files":[`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(t.Context(), bytes.NewReader(archive), nil, nil)
		runtime.ReadMemStats(&after)
		if !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", what, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 60<<20 {
			t.Errorf("%s: an archive of %d bytes took %d MiB", what, len(archive), took>>20)
		}
	}
}

// TestEntriesAreBounded: an archive has at most so many entries, with names of at most such a length.
func TestEntriesAreBounded(t *testing.T) {
	one := func(r reader, name string) error {
		r.tar = tar.NewReader(strings.NewReader(""))
		return r.one(&tar.Header{Name: name, Typeflag: tar.TypeReg})
	}
	for _, err := range []error{
		one(reader{files: make([]File, mostFiles)}, "agents/a"), one(reader{}, "agents/"+strings.Repeat("a", mostName)),
	} {
		if !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%v", err)
		}
	}
	if err := one(reader{files: make([]File, mostFiles-1)}, "agents/a"); err != nil {
		t.Error(err)
	}
}

// TestNewerFormat names the release that can read it.
func TestNewerFormat(t *testing.T) {
	var out bytes.Buffer
	a, err := newArchive(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.addJSON(headName, Head{Version: version + 1, Release: "v9"}), a.close()); err != nil {
		t.Fatal(err)
	}
	_, err = restore(t, out.Bytes(), Restoring{})
	if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(holdfast.HintOf(err), `"v9"`) {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
}

// TestKeys: keys are in an archive only encrypted, and open with their passphrase only.
func TestKeys(t *testing.T) {
	var out bytes.Buffer
	keys := map[string][]byte{"secrets.key": []byte("the root key"), "audit.key": []byte("another")}
	if err := PutKeys(&out, "open", keys); err != nil {
		t.Fatal(err)
	}
	archive := append(out.Bytes(), written(t)...)
	z, err := zstd.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if plain, err := io.ReadAll(z); err != nil || bytes.Contains(plain, keys["secrets.key"]) {
		t.Errorf("the keys can be read without the passphrase, or %v", err)
	}
	say := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := restore(t, archive, Restoring{Dir: dir, Passphrase: say("wrong")}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("with a wrong passphrase: %v", err)
	}
	s, err := restore(t, archive, Restoring{Dir: dir, Passphrase: say("open")})
	want := restorable()
	want["secrets.key"], want["audit.key"] = "the root key", "another"
	if got := found(t, dir); err != nil || !s.Keys || !maps.Equal(got, want) {
		t.Errorf("%v, %q", err, slices.Sorted(maps.Keys(got)))
	}
	dir = filepath.Join(t.TempDir(), "restored")
	if _, err := restore(t, archive, Restoring{Dir: dir}); err != nil || !maps.Equal(found(t, dir), restorable()) {
		t.Errorf("without the keys: %v", err)
	}
	if err := PutKeys(io.Discard, "x", map[string][]byte{"token": nil}); err != nil {
		t.Fatal(err)
	}
}

// TestRefusals: only one archive is written at a time; what a check refuses is not restored; errors of the server and of
// the reader end a backup.
func TestRefusals(t *testing.T) {
	src := sourceOf(data(t, stored))
	inner := error(nil)
	var w *Writer
	src.Settle = func(ctx context.Context) ([]holdfast.SessionID, error) {
		inner = w.Write(ctx, io.Discard)
		return nil, nil
	}
	w = writer(t, src)
	if err := w.Write(t.Context(), io.Discard); err != nil || !holdfast.IsKind(inner, holdfast.KindConflict) {
		t.Errorf("%v; a second one: %v", err, inner)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	no := errors.New("damaged")
	if _, err := restore(t, written(t), Restoring{Dir: dir, Check: func(string, Summary) error { return no }}); !errors.Is(err, no) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	src = sourceOf(data(t, stored))
	src.Database = func(context.Context, string) error { return no }
	if err := writer(t, src).Write(t.Context(), io.Discard); !errors.Is(err, no) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := writer(t, sourceOf(data(t, stored))).Write(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Restore(ctx, bytes.NewReader(written(t)), Restoring{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPacksAreHeld: no pack is removed while the database is copied and the packs are linked. One that is removed
// afterwards is in the archive.
func TestPacksAreHeld(t *testing.T) {
	src := sourceOf(data(t, stored))
	held := false
	src.Paused = func(fn func() error) error {
		held = true
		err := fn()
		held = false
		return errors.Join(err, os.Remove(filepath.Join(src.Data, "snapshots", "aa.v1.pack")))
	}
	copies := src.Database
	src.Database = func(ctx context.Context, path string) error {
		if !held {
			t.Error("packs may be removed while the database is copied")
		}
		return copies(ctx, path)
	}
	var out bytes.Buffer
	if err := writer(t, src).Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := restore(t, out.Bytes(), Restoring{Dir: dir}); err != nil || !maps.Equal(found(t, dir), restorable()) {
		t.Errorf("%v", err)
	}
}

// TestNewWriterRemovesStages: what a killed server kept for a backup is gone with the next start.
func TestNewWriterRemovesStages(t *testing.T) {
	dir := data(t, map[string]string{"backup/holdfast.db": "a copy", "backup/snapshots/aa.v1.pack": "a pack"})
	w := writer(t, sourceOf(dir))
	if _, err := os.Lstat(w.stage()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzRead: no input makes Read panic, and none but a whole archive is accepted.
func FuzzRead(f *testing.F) {
	whole := written(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read(t.Context(), bytes.NewReader(b), nil, nil)
		if err == nil && (len(s.Files) == 0 || s.Files[0].Name != databaseName) {
			t.Errorf("accepted %+v", s)
		}
		if err != nil && !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%v", err)
		}
	})
}

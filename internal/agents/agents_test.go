package agents

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/versions"
)

// memStore is a Store in memory.
type memStore struct {
	mu       sync.Mutex
	versions map[holdfast.AgentName][]holdfast.AgentVersion
	deleted  map[holdfast.AgentName]bool
	fail     error
}

func newStore() *memStore {
	return &memStore{versions: map[holdfast.AgentName][]holdfast.AgentVersion{}, deleted: map[holdfast.AgentName]bool{}}
}

func (m *memStore) PutAgentVersion(_ context.Context, v holdfast.AgentVersion) (holdfast.Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return holdfast.Agent{}, m.fail
	}
	v.Number = int64(len(m.versions[v.Agent]) + 1)
	m.versions[v.Agent] = append(m.versions[v.Agent], v)
	delete(m.deleted, v.Agent)
	return holdfast.Agent{Name: v.Agent, Version: v.Number, VersionID: v.ID, Runtime: "native"}, nil
}

func (m *memStore) Agent(_ context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	vs := m.versions[name]
	if len(vs) == 0 || m.deleted[name] {
		return holdfast.Agent{}, holdfast.Errorf(holdfast.KindNotFound, "store", "no agent %q", name)
	}
	v := vs[len(vs)-1]
	return holdfast.Agent{Name: name, Version: v.Number, VersionID: v.ID, Runtime: "native"}, nil
}

func (m *memStore) Agents(ctx context.Context) (out []holdfast.Agent, err error) {
	for name := range m.versions {
		if a, err := m.Agent(ctx, name); err == nil {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b holdfast.Agent) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out, nil
}

func (m *memStore) AgentVersions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error) {
	if _, err := m.Agent(ctx, name); err != nil {
		return nil, err
	}
	out := slices.Clone(m.versions[name])
	slices.Reverse(out)
	return out, nil
}

func (m *memStore) UpdateAgent(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error) {
	a, err := m.Agent(ctx, name)
	for to, p := range map[*string]*string{&a.Description: req.Description, &a.Model: req.Model, (*string)(&a.Mode): req.Mode} {
		if p != nil {
			*to = *p
		}
	}
	return a, err
}

func (m *memStore) DeleteAgent(ctx context.Context, name holdfast.AgentName) error {
	_, err := m.Agent(ctx, name)
	m.deleted[name] = true
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind holdfast.Kind, part string) {
	t.Helper()
	if err == nil || !holdfast.IsKind(err, kind) || !strings.Contains(err.Error()+" hint: "+holdfast.HintOf(err), part) {
		t.Errorf("got %v (kind %q, hint %q), want kind %q and %q in it", err, holdfast.KindOf(err), holdfast.HintOf(err), kind, part)
	}
}

func openRegistry(t *testing.T, dir string, store Store) *Registry {
	t.Helper()
	r, err := Open(t.Context(), Config{Dir: dir, Store: store})
	must(t, err)
	return r
}

// entry is an entry of a tar under test.
type entry struct {
	name, body string
	typ        byte
	mode       int64
}

func makeTar(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.typ == 0 {
			e.typ = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		h := &tar.Header{Name: e.name, Typeflag: e.typ, Mode: e.mode, Size: int64(len(e.body))}
		if e.typ != tar.TypeReg {
			h.Size, h.Linkname = 0, e.body
		}
		must(t, w.WriteHeader(h))
		if e.typ == tar.TypeReg {
			_, err := w.Write([]byte(e.body))
			must(t, err)
		}
	}
	must(t, w.Close())
	return buf.Bytes()
}

func deploy(t *testing.T, r *Registry, name string, entries ...entry) (holdfast.Agent, error) {
	t.Helper()
	d, err := r.Deploy(t.Context(), holdfast.AgentName(name), bytes.NewReader(makeTar(t, entries...)))
	return d.Agent, err
}

// clean fails when a stage is left in the registry's directory, and counts versions.
func clean(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if len(e.Name()) != 64 {
			t.Errorf("left in the directory: %s", e.Name())
		}
	}
	return len(entries)
}

func TestDeployAndReadBack(t *testing.T) {
	dir := t.TempDir()
	r := openRegistry(t, dir, newStore())
	a, err := deploy(
		t, r, "coder",
		entry{name: "./", typ: tar.TypeDir},
		entry{name: "./skills/", typ: tar.TypeDir},
		entry{name: "./skills/run.sh", body: "#!/bin/sh\n", mode: 0o700},
		entry{name: "./CLAUDE.md", body: "Be brief.", mode: 0o600},
		entry{name: ".mcp.json", body: "{}"},
	)
	must(t, err)
	if a.Name != "coder" || a.Version != 1 {
		t.Errorf("agent %+v", a)
	}
	files, err := r.Files(t.Context(), a.VersionID)
	must(t, err)
	var got []string
	for _, f := range files {
		got = append(got, fmt.Sprintf("%s %o %s", f.Path, f.Mode, f.Content))
	}
	want := []string{".mcp.json 644 {}", "CLAUDE.md 644 Be brief.", "skills/run.sh 755 #!/bin/sh\n"}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	text, err := r.Instructions(t.Context(), a.VersionID)
	must(t, err)
	if text != "Be brief." {
		t.Errorf("instructions %q", text)
	}
	vs, err := r.Versions(t.Context(), "coder")
	must(t, err)
	if len(vs) != 1 || len(vs[0].Files) != 3 || vs[0].Files[2].Mode != 0o755 || vs[0].Files[1].Size != 9 {
		t.Errorf("versions %+v", vs)
	}
	if n := clean(t, dir); n != 2 {
		t.Errorf("%d versions on disk, want the default's and this one", n)
	}
}

// TestASH1VersionsKeepTheirContent: an old version is still whole after others.
func TestASH1VersionsKeepTheirContent(t *testing.T) {
	dir := t.TempDir()
	r := openRegistry(t, dir, newStore())
	one, err := deploy(t, r, "a", entry{name: "AGENTS.md", body: "one"})
	must(t, err)
	two, err := deploy(t, r, "a", entry{name: "AGENTS.md", body: "two"}, entry{name: "x", body: "y"})
	must(t, err)
	again, err := deploy(t, r, "a", entry{name: "AGENTS.md", body: "one", mode: 0o640})
	must(t, err)
	if one.VersionID == two.VersionID || again.VersionID != one.VersionID || again.Version != 3 {
		t.Errorf("versions %v, %v, %v", one, two, again)
	}
	exec, err := deploy(t, r, "a", entry{name: "AGENTS.md", body: "one", mode: 0o755})
	must(t, err)
	if exec.VersionID == one.VersionID {
		t.Error("the executable bit is not part of the version")
	}
	must(t, r.Delete(t.Context(), "a"))
	for id, want := range map[holdfast.VersionID]string{one.VersionID: "one", two.VersionID: "two"} {
		if text, err := r.Instructions(t.Context(), id); err != nil || text != want {
			t.Errorf("instructions of %s: %q (%v)", id, text, err)
		}
	}
	if n := clean(t, dir); n != 4 {
		t.Errorf("%d versions on disk, want 4", n)
	}
}

func TestDeployRefuses(t *testing.T) {
	md := entry{name: "CLAUDE.md", body: "x"}
	dir := t.TempDir()
	r := openRegistry(t, dir, newStore())
	before := clean(t, dir)
	for _, c := range []struct {
		what    string
		entries []entry
		part    string
	}{
		{"nothing", nil, "neither CLAUDE.md nor AGENTS.md"},
		{"no instructions", []entry{{name: "README.md"}}, "write the agent's instructions"},
		{"a folder around it", []entry{{name: "bot/CLAUDE.md"}}, "deploy the folder bot itself"},
		{"odd case", []entry{{name: "claude.md"}}, "rename the file claude.md to CLAUDE.md"},
		{"a directory of that name", []entry{{name: "CLAUDE.md/x"}}, "neither"},
		{"absolute", []entry{md, {name: "/etc/x"}}, `"/etc/x" cannot be in an agent's folder: it is absolute`},
		{"parent", []entry{md, {name: "../x"}}, `"../x" cannot be in an agent's folder: it contains ".."`},
		{"parent inside", []entry{md, {name: "a/../../x"}}, `".."`},
		{"not clean", []entry{md, {name: "a//x"}}, "not clean"},
		{"dot inside", []entry{md, {name: "a/./x"}}, "not clean"},
		{"control character", []entry{md, {name: "a\nb"}}, "control character"},
		{"not UTF-8", []entry{md, {name: "a\xffb"}}, "UTF-8"},
		{"long name", []entry{md, {name: strings.Repeat("n", 256)}}, "255"},
		{"long path", []entry{md, {name: strings.Repeat("nnn/", 300) + "x"}}, "1000"},
		{"symlink", []entry{md, {name: "l", typ: tar.TypeSymlink, body: "/etc"}}, `"l" cannot be in an agent's folder: it is a symlink`},
		{"hard link", []entry{md, {name: "h", typ: tar.TypeLink, body: "CLAUDE.md"}}, `"h" cannot be in an agent's folder: it is a hard link`},
		{"device", []entry{md, {name: "d", typ: tar.TypeChar}}, `"d" cannot be in an agent's folder: it is a device`},
		{"FIFO", []entry{md, {name: "f", typ: tar.TypeFifo}}, `"f" cannot be in an agent's folder: it is a named pipe`},
		{"twice", []entry{md, {name: "a"}, {name: "a"}}, `"a" conflicts with an earlier entry`},
		{"twice, once with a dot", []entry{md, {name: "a"}, {name: "./a"}}, `"a" conflicts with an earlier entry`},
		{"case", []entry{md, {name: "Readme"}, {name: "README"}}, "differ only in case"},
		{"case of a directory", []entry{md, {name: "Src/a"}, {name: "src/b"}}, "differ only in case"},
		{"file and directory", []entry{md, {name: "a"}, {name: "a/b"}}, "conflicts with an earlier entry"},
		{"directory and file", []entry{md, {name: "a/b"}, {name: "a"}}, "conflicts with an earlier entry"},
		{"symlinked instructions", []entry{{name: "CLAUDE.md", typ: tar.TypeSymlink, body: "AGENTS.md"}, {name: "AGENTS.md"}}, "a symlink"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := deploy(t, r, "a", c.entries...)
			wantKind(t, err, holdfast.KindInvalid, c.part)
			if n := clean(t, dir); n != before {
				t.Errorf("%d versions on disk after a refusal, had %d", n, before)
			}
		})
	}
	_, err := deploy(t, r, "Not A Name", md)
	wantKind(t, err, holdfast.KindInvalid, "not an agent name")
	if _, err := r.Get(t.Context(), "a"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a refused deploy left the agent: %v", err)
	}
}

func TestDeployLimits(t *testing.T) {
	dir := t.TempDir()
	r := openRegistry(t, dir, newStore())
	many := []entry{{name: "CLAUDE.md"}}
	for i := range MaxFiles {
		many = append(many, entry{name: fmt.Sprintf("f%d", i)})
	}
	_, err := deploy(t, r, "a", many...)
	wantKind(t, err, holdfast.KindTooLarge, "5000 files")
	dirs := []entry{{name: "CLAUDE.md"}}
	for i := range maxEntries {
		dirs = append(dirs, entry{name: fmt.Sprintf("d%d/", i), typ: tar.TypeDir})
	}
	_, err = deploy(t, r, "a", dirs...)
	wantKind(t, err, holdfast.KindTooLarge, "20000 entries")
	// Judged by the header: the content is never read.
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	must(t, w.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: MaxBytes + 1, Mode: 0o644}))
	_, err = r.Deploy(t.Context(), "a", &buf)
	wantKind(t, err, holdfast.KindTooLarge, "50 MB")
	clean(t, dir)
}

// TestDeployCutOff: a tar that ends early, anywhere, is never taken for whole.
func TestDeployCutOff(t *testing.T) {
	dir := t.TempDir()
	r := openRegistry(t, dir, newStore())
	whole := makeTar(t, entry{name: "CLAUDE.md", body: "x"}, entry{name: "b", body: strings.Repeat("y", 700)})
	for n := 0; n < len(whole)-512; n += 256 {
		_, err := r.Deploy(t.Context(), "a", bytes.NewReader(whole[:n]))
		wantKind(t, err, holdfast.KindInvalid, "empty or incomplete")
	}
	_, err := r.Deploy(t.Context(), "a", iotest.DataErrReader(bytes.NewReader(whole)))
	must(t, err)
	broken := errors.New("connection reset")
	_, err = r.Deploy(t.Context(), "a", io.MultiReader(bytes.NewReader(whole[:600]), iotest.ErrReader(broken)))
	wantKind(t, err, holdfast.KindUnavailable, "connection reset")
	large := holdfast.Errorf(holdfast.KindTooLarge, "http", "too much")
	_, err = r.Deploy(t.Context(), "a", iotest.ErrReader(large))
	wantKind(t, err, holdfast.KindTooLarge, "too much")
	_, err = r.Deploy(t.Context(), "a", strings.NewReader(strings.Repeat("not a tar ", 200)))
	wantKind(t, err, holdfast.KindInvalid, "not a tar")
	_, err = r.Deploy(t.Context(), "a", strings.NewReader("\x1f\x8b"+strings.Repeat("z", 2000)))
	wantKind(t, err, holdfast.KindInvalid, "compressed")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Deploy(ctx, "a", bytes.NewReader(whole)); err == nil {
		t.Error("deployed with an ended context")
	}
	clean(t, dir)
}

// TestCrashLeavesNoHalfVersion: a stage, in any state, is gone after the next
// start and was never a version; a failed row leaves the agent as it was.
func TestCrashLeavesNoHalfVersion(t *testing.T) {
	dir, store := t.TempDir(), newStore()
	r := openRegistry(t, dir, store)
	must(t, os.MkdirAll(filepath.Join(dir, stagePrefix+"1/files/a"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, stagePrefix+"1/files/CLAUDE.md"), []byte("ha"), 0o400))
	must(t, os.Chmod(filepath.Join(dir, stagePrefix+"1/files/a"), 0o500))
	store.fail = holdfast.Errorf(holdfast.KindUnavailable, "store", "read-only")
	_, err := deploy(t, r, "a", entry{name: "CLAUDE.md", body: "x"})
	wantKind(t, err, holdfast.KindUnavailable, "read-only")
	store.fail = nil
	r = openRegistry(t, dir, store)
	clean(t, dir)
	if _, err := r.Get(t.Context(), "a"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("an agent without a row: %v", err)
	}
	// The content of the failed deploy is stored; deploying it again takes it.
	_, err = deploy(t, r, "a", entry{name: "CLAUDE.md", body: "x"})
	must(t, err)
}

func TestDamageIsNoticed(t *testing.T) {
	dir := t.TempDir()
	r := openRegistry(t, dir, newStore())
	a, err := deploy(t, r, "a", entry{name: "CLAUDE.md", body: "x"}, entry{name: "b", body: "y"})
	must(t, err)
	file := filepath.Join(r.path(a.VersionID), filesDir, "b")
	must(t, os.Chmod(file, 0o600))
	must(t, os.WriteFile(file, []byte("z"), 0o600))
	_, err = r.Files(t.Context(), a.VersionID)
	wantKind(t, err, holdfast.KindInternal, `"b"`)
	_, err = deploy(t, r, "a", entry{name: "CLAUDE.md", body: "x"}, entry{name: "b", body: "y"})
	wantKind(t, err, holdfast.KindInternal, "damaged")
	must(t, os.RemoveAll(r.path(a.VersionID)))
	_, err = r.Instructions(t.Context(), a.VersionID)
	wantKind(t, err, holdfast.KindNotFound, string(a.VersionID))
	_, err = r.Files(t.Context(), "sha256:../../etc")
	wantKind(t, err, holdfast.KindInvalid, "not the id of an agent version")
}

func TestBuiltinDefault(t *testing.T) {
	dir, store := t.TempDir(), newStore()
	r := openRegistry(t, dir, store)
	a, err := r.Get(t.Context(), holdfast.DefaultAgent)
	must(t, err)
	text, err := r.Instructions(t.Context(), a.VersionID)
	if err != nil || !strings.Contains(text, "workspace") {
		t.Errorf("instructions %q (%v)", text, err)
	}
	wantKind(t, r.Delete(t.Context(), holdfast.DefaultAgent), holdfast.KindDenied, "built in")
	r = openRegistry(t, dir, store)
	if b, err := r.Get(t.Context(), holdfast.DefaultAgent); err != nil || b != a {
		t.Errorf("after another start: %+v (%v)", b, err)
	}
	own, err := deploy(t, r, "default", entry{name: "CLAUDE.md", body: "mine"})
	must(t, err)
	r = openRegistry(t, dir, store)
	if b, _ := r.Get(t.Context(), holdfast.DefaultAgent); b.VersionID != own.VersionID {
		t.Error("a start replaced the operator's default agent")
	}
	must(t, os.RemoveAll(r.path(own.VersionID)))
	r = openRegistry(t, dir, store)
	if b, _ := r.Get(t.Context(), holdfast.DefaultAgent); b.VersionID != a.VersionID {
		t.Error("a default agent whose files are gone was not deployed again")
	}
	list, err := r.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Errorf("agents %+v (%v)", list, err)
	}
}

func TestInstructionsAreCut(t *testing.T) {
	r := openRegistry(t, t.TempDir(), newStore())
	a, err := deploy(t, r, "a", entry{name: "AGENTS.md", body: "agents"}, entry{name: "CLAUDE.md", body: strings.Repeat("é", maxInstructions)})
	must(t, err)
	for range 2 {
		text, err := r.Instructions(t.Context(), a.VersionID)
		must(t, err)
		if len(text) > maxInstructions+100 || !strings.HasSuffix(text, "bytes more]") || !strings.HasPrefix(text, "éé") {
			t.Errorf("instructions of %d bytes, ending %q", len(text), text[len(text)-40:])
		}
	}
	for i := range versions.Most + 5 {
		r.texts.Keep(holdfast.VersionID(fmt.Sprint(i)), "text")
	}
	if r.texts.Len() > versions.Most {
		t.Errorf("%d texts are kept", r.texts.Len())
	}
}

func TestDeployAtOnce(t *testing.T) {
	dir := t.TempDir()
	r := openRegistry(t, dir, newStore())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := deploy(t, r, "a", entry{name: "CLAUDE.md", body: "same"}, entry{name: "d/e", body: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := clean(t, dir); n != 2 {
		t.Errorf("%d versions on disk, want 2", n)
	}
	vs, err := r.Versions(t.Context(), "a")
	if err != nil || len(vs) != 1 {
		t.Errorf("%d versions of one content (%v)", len(vs), err)
	}
}

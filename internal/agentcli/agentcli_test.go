package agentcli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// registry serves packages and counts what is fetched.
type registry struct {
	t       *testing.T
	files   map[string][]byte
	pins    map[string]pin
	fetched int
	url     string
}

func newRegistry(t *testing.T) *registry {
	r := &registry{t: t, files: map[string][]byte{}, pins: map[string]pin{}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, ok := r.files[q.URL.Path]
		if !ok {
			http.NotFound(w, q)
			return
		}
		r.fetched++
		_, _ = w.Write(b)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// pack makes a package of these entries.
func pack(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func integrity(b []byte) string {
	sum := sha512.Sum512(b)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// add pins a version of a CLI made of one package.
func (r *registry) add(name, version string, p pin, entries ...tar.Header) {
	b := pack(r.t, entries...)
	k := pkg{Name: "@org/" + name, Version: version, Integrity: integrity(b), Into: "node_modules/" + name}
	r.files[k.url("")] = b
	p.Packages = []pkg{k}
	r.pins[name] = p
}

func (r *registry) store(dir string) *Store {
	s := New(Config{Dir: dir, Registry: r.url + "/", Platform: "linux/amd64"})
	var err error
	if s.pinned, err = json.Marshal(r.pins); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestInstall: a CLI and what it needs are there after one call, for others to
// read, and fetched once; a newer pin goes beside, and the older stays as it was.
func TestInstall(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	r := newRegistry(t)
	r.add("node", "22.1.0", pin{}, tar.Header{Name: "package/bin/node", Mode: 0o600}, tar.Header{Name: "package/x/", Typeflag: tar.TypeDir})
	r.add("agent", "1.0.0", pin{Needs: []string{"node"}, Program: []string{"{node}/bin/node", "{agent}/a.js"}, Env: map[string]string{"X": "{node}"}},
		tar.Header{Name: "package/a.js", Mode: 0o644}, tar.Header{Name: "package/bin/run", Mode: 0o755})
	dir := filepath.Join(t.TempDir(), "runtimes")
	s := r.store(dir)
	if _, err := s.Find("agent"); !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) != "holdfast runtime install agent" {
		t.Fatalf("%v, hint %q", err, holdfast.HintOf(err))
	}
	var told []Progress
	in, err := s.Install(t.Context(), "agent", func(p Progress) { told = append(told, p) })
	if err != nil {
		t.Fatal(err)
	}
	if found, err := s.Find("agent"); err != nil || found.Tree != in.Tree || !strings.HasPrefix(in.Tree, "agent/1.0.0-") {
		t.Fatalf("%+v %v", found, err)
	}
	if len(told) == 0 || told[len(told)-1].Name != "agent" {
		t.Errorf("told %+v", told)
	}
	argv, env := in.At("/opt/holdfast")
	if want := "/opt/holdfast/" + in.Needs["node"]; argv[0] != want+"/bin/node" || argv[1] != "/opt/holdfast/"+in.Tree+"/a.js" || env["X"] != want {
		t.Errorf("%q %q", argv, env)
	}
	for name, want := range map[string]fs.FileMode{
		"": 0o755, "node": 0o755, in.Needs["node"] + "/node_modules/node/bin/node": 0o755, in.Tree + "/node_modules/agent/a.js": 0o644,
		in.Tree + "/node_modules/agent/bin/run": 0o755, in.Tree + "/node_modules": 0o755, in.Tree: 0o755,
	} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, fi.Mode(), err)
		}
	}
	if _, err := s.Install(t.Context(), "agent", nil); err != nil || r.fetched != 2 {
		t.Errorf("fetched %d times: %v", r.fetched, err)
	}
	r.add("node", "22.2.0", pin{}, tar.Header{Name: "package/bin/node", Mode: 0o600})
	s = r.store(dir)
	if list, err := s.List(); err != nil || len(list) != 2 || list[0].Current || list[0].Installed != "1.0.0" {
		t.Errorf("%+v %v", list, err)
	}
	newer, err := s.Install(t.Context(), "agent", nil)
	if err != nil || newer.Tree == in.Tree || newer.Needs["node"] == in.Needs["node"] {
		t.Fatalf("%+v %v", newer, err)
	}
	if _, err := os.Stat(filepath.Join(dir, in.Tree, manifest)); err != nil {
		t.Error("the older tree is gone")
	}
	if list, err := s.List(); err != nil || !list[0].Current || !list[1].Current {
		t.Errorf("%+v %v", list, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 1 {
		t.Errorf("left %q %v", left, err)
	}
}

// TestWhatIsNotPinnedIsRefused: nothing of a package is taken that is not, to the
// bit, what the pins say.
func TestWhatIsNotPinnedIsRefused(t *testing.T) {
	r := newRegistry(t)
	r.add("agent", "1.0.0", pin{}, tar.Header{Name: "package/a.js", Mode: 0o644})
	for path := range r.files {
		r.files[path] = pack(t, tar.Header{Name: "package/a.js", Mode: 0o600})
	}
	dir := t.TempDir()
	s := r.store(dir)
	if _, err := s.Install(t.Context(), "agent", nil); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a package with another integrity: %v", err)
	}
	if _, err := s.Find("agent"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "agent")); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
	clear(r.files)
	if _, err := s.Install(t.Context(), "agent", nil); !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "404") {
		t.Errorf("a package that is not there: %v", err)
	}
	if _, err := s.Install(t.Context(), "none", nil); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a name without a pin: %v", err)
	}
}

// TestUnpackStaysInside: whatever a package holds, nothing is written outside of its
// place and no link is made.
func TestUnpackStaysInside(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"up":          {{Name: "package/../../up"}},
		"hidden up":   {{Name: "package/a/../../../up"}},
		"absolute":    {{Name: "/package/up"}},
		"bare":        {{Name: "up"}},
		"the root":    {{Name: "package/."}},
		"double":      {{Name: "package//up"}},
		"twice":       {{Name: "package/a"}, {Name: "package/a"}},
		"link":        {{Name: "package/l", Typeflag: tar.TypeSymlink, Linkname: "../../up"}},
		"hard link":   {{Name: "package/l", Typeflag: tar.TypeLink, Linkname: "package/a"}},
		"device":      {{Name: "package/l", Typeflag: tar.TypeChar}},
		"pipe":        {{Name: "package/l", Typeflag: tar.TypeFifo}},
		"empty":       {},
		"a directory": {{Name: "package/a", Typeflag: tar.TypeDir}},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			tree := filepath.Join(base, "x", "tree")
			if err := os.MkdirAll(tree, 0o755); err != nil {
				t.Fatal(err)
			}
			packed := filepath.Join(base, "p.tgz")
			if err := os.WriteFile(packed, pack(t, entries...), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := unpack(packed, pkg{Name: "x", Into: "node_modules/x"}, tree); !holdfast.IsKind(err, holdfast.KindDenied) {
				t.Errorf("%v", err)
			}
			outside(t, base)
		})
	}
}

// outside fails when there is anything but plain files in the tree.
func outside(t testing.TB, base string) {
	t.Helper()
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		inside := strings.HasPrefix(path, filepath.Join(base, "x", "tree")+"/")
		if err == nil && !d.IsDir() && (!inside || !d.Type().IsRegular()) && filepath.Base(path) != "p.tgz" {
			t.Errorf("%s was made", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzUnpack: no archive makes anything outside of the tree.
func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, tar.Header{Name: "package/a"}))
	f.Add(pack(f, tar.Header{Name: "package/../../a"}, tar.Header{Name: "package/l", Typeflag: tar.TypeSymlink, Linkname: "/"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		base := t.TempDir()
		tree := filepath.Join(base, "x", "tree")
		if err := os.MkdirAll(tree, 0o755); err != nil {
			t.Fatal(err)
		}
		packed := filepath.Join(base, "p.tgz")
		if err := os.WriteFile(packed, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = unpack(packed, pkg{Name: "x"}, tree)
		outside(t, base)
	})
}

// TestPins: each package is pinned by a hash, each program's trees are its own or
// needed ones, and this machine has all of them.
func TestPins(t *testing.T) {
	s := New(Config{Dir: t.TempDir()})
	all, err := s.pins()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range all {
		for _, k := range p.Packages {
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(k.Integrity, "sha512-"))
			if err != nil || len(sum) != sha512.Size || k.Version == "" {
				t.Errorf("%s: %+v", name, k)
			}
		}
		for _, platform := range []string{"linux/amd64", "linux/arm64"} {
			in, _, err := resolved(name, platform, all)
			if err != nil {
				t.Errorf("%s on %s: %v", name, platform, err)
				continue
			}
			argv, env := in.At("/opt/holdfast")
			for _, v := range env {
				argv = append(argv, v)
			}
			for _, arg := range argv {
				if strings.ContainsAny(arg, "{}") || !strings.HasPrefix(arg, "/opt/holdfast/") {
					t.Errorf("%s on %s: %q", name, platform, arg)
				}
			}
		}
	}
	if _, err := all["claude"].on("claude", "plan9/mips"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Error(err)
	}
}

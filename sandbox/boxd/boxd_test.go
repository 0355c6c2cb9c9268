package boxd

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/holdfast-run/holdfast"
)

func packed(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadRefusesWhatIsNotThereOrDamaged(t *testing.T) {
	good, sum := packed(t, []byte("program")), []byte(Of([]byte("program")).Hash+"\n")
	for name, c := range map[string]struct {
		fs   fstest.MapFS
		want string
	}{
		"missing":   {fstest.MapFS{"dist/README": {}}, ""},
		"other":     {fstest.MapFS{"dist/boxd_linux_arm64.gz": {Data: good}, "dist/boxd_linux_arm64.sha256": {Data: sum}}, ""},
		"hash only": {fstest.MapFS{"dist/boxd_linux_amd64.sha256": {Data: sum}}, ""},
		"garbage":   {fstest.MapFS{"dist/boxd_linux_amd64.gz": {Data: []byte("no gzip")}, "dist/boxd_linux_amd64.sha256": {Data: sum}}, ""},
		"cut":       {fstest.MapFS{"dist/boxd_linux_amd64.gz": {Data: good[:len(good)-4]}, "dist/boxd_linux_amd64.sha256": {Data: sum}}, ""},
		"empty":     {fstest.MapFS{"dist/boxd_linux_amd64.gz": {Data: packed(t, nil)}, "dist/boxd_linux_amd64.sha256": {Data: sum}}, ""},
		"another":   {fstest.MapFS{"dist/boxd_linux_amd64.gz": {Data: packed(t, []byte("malware"))}, "dist/boxd_linux_amd64.sha256": {Data: sum}}, ""},
		"good":      {fstest.MapFS{"dist/boxd_linux_amd64.gz": {Data: good}, "dist/boxd_linux_amd64.sha256": {Data: sum}}, "program"},
	} {
		p, err := embedded(c.fs, "amd64")
		var got []byte
		if err == nil {
			got, err = p.Bytes()
		}
		if string(got) != c.want {
			t.Errorf("%s: got %q", name, got)
		}
		if c.want == "" && (!holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "") {
			t.Errorf("%s: %v has no kind or hint", name, err)
		}
	}
	for name, p := range map[string]Program{"none": {}, "of nothing": {Hash: "x"}} {
		if _, err := p.Extract(t.TempDir()); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExtractRepairsAndIsStable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path, err := Of([]byte("program")).Extract(dir)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o755 {
		t.Fatalf("%v %v", st, err)
	}
	if err := os.WriteFile(path, []byte("cut"), 0o755); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			again, err := Of([]byte("program")).Extract(dir)
			if err != nil || again != path {
				t.Errorf("%s %v", again, err)
			}
		})
	}
	wg.Wait()
	if b, _ := os.ReadFile(path); string(b) != "program" {
		t.Errorf("a damaged file was kept: %q", b)
	}
	other, err := Of([]byte("another")).Extract(dir)
	if err != nil || other == path {
		t.Errorf("another program has the same path: %s %v", other, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".boxd-*"))
	if len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

// TestProgramIsMappedInSmallPages checks that no part of the program has the same
// offset in its file as in memory, modulo 2 MiB. Where both agree the kernel maps 2 MiB
// at once, and an idle boxd that touches one page of it then costs 2 MiB in each box.
func TestProgramIsMappedInSmallPages(t *testing.T) {
	local, err := Local()
	if err != nil {
		t.Skip("boxd is not built:", err)
	}
	program, err := local.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	const huge = 2 << 20
	loads := 0
	for _, p := range file.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		loads++
		if p.Vaddr%huge == p.Off%huge {
			t.Errorf("the segment at %#x can be mapped 2 MiB at a time: its file offset is %#x", p.Vaddr, p.Off)
		}
	}
	if loads == 0 {
		t.Error("the program has no segment")
	}
}

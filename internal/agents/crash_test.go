package agents

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestDeploySurvivesSIGKILL: whenever a server is killed, every version on disk
// is whole after the next start, and nothing else is there.
func TestDeploySurvivesSIGKILL(t *testing.T) {
	if dir := os.Getenv("AGENTS_TEST_DIR"); dir != "" {
		r, err := Open(t.Context(), Config{Dir: dir, Store: newStore()})
		must(t, err)
		for i := 0; ; i++ {
			entries := []entry{{name: "CLAUDE.md", body: fmt.Sprint(os.Getpid(), i)}}
			for j := range 5 {
				entries = append(entries, entry{name: fmt.Sprintf("d%d/f", j), body: strings.Repeat("x", 50_000)})
			}
			_, err := r.Deploy(t.Context(), "a", bytes.NewReader(makeTar(t, entries...)))
			must(t, err)
		}
	}
	self, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	stages := 0
	for round := 0; round < 8 || stages == 0 && round < 100; round++ {
		had, err := os.ReadDir(dir)
		must(t, err)
		cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestDeploySurvivesSIGKILL$")
		cmd.Env = []string{"AGENTS_TEST_DIR=" + dir, "TMPDIR=" + dir}
		must(t, cmd.Start())
		// Two more than before: a version that is new in this round, and a stage or another.
		for end := time.Now().Add(30 * time.Second); ; pause(time.Millisecond) {
			now, err := os.ReadDir(dir)
			must(t, err)
			if len(now) >= len(had)+2 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("nothing is deployed")
			}
		}
		pause(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		before, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range before {
			if strings.HasPrefix(e.Name(), stagePrefix) {
				stages++
			}
		}
		r := openRegistry(t, dir, newStore())
		clean(t, dir)
		versions, err := os.ReadDir(dir)
		must(t, err)
		for _, v := range versions {
			if _, err := r.Files(t.Context(), holdfast.VersionID("sha256:"+v.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if stages == 0 || clean(t, dir) < 2 {
		t.Errorf("%d kills fell into a deploy, %d versions: nothing was tested", stages, clean(t, dir))
	}
}

// pause lets the other process get on: how far does not matter.
func pause(d time.Duration) { <-time.NewTimer(d).C }

package rooted

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSeedSurvivesSIGKILL: a seed that was killed anywhere leaves whole files
// only, and the next one completes it.
func TestSeedSurvivesSIGKILL(t *testing.T) {
	var files []File
	for i := range 60 {
		files = append(files, File{Path: fmt.Sprintf("d%d/e/f%d", i%7, i), Mode: 0o644, Content: []byte(strings.Repeat(fmt.Sprint(i%10), 20_000))})
	}
	whole := func(dir string) (n int) {
		t.Helper()
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, f.Path))
			if os.IsNotExist(err) {
				continue
			}
			must(t, err)
			if string(data) != string(f.Content) {
				t.Fatalf("%s has %d bytes", f.Path, len(data))
			}
			n++
		}
		return n
	}
	if dir := os.Getenv("SEED_TEST_DIR"); dir != "" {
		must(t, seed(dir, files, os.Getuid(), os.Getgid()))
		return
	}
	self, err := os.Executable()
	must(t, err)
	partly := 0
	for range 8 {
		dir := filepath.Join(t.TempDir(), "ws")
		cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestSeedSurvivesSIGKILL$")
		cmd.Env = []string{"SEED_TEST_DIR=" + dir}
		must(t, cmd.Start())
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); pause(time.Millisecond) {
			if _, err := os.Lstat(filepath.Join(dir, "d0")); err == nil {
				break
			}
		}
		pause(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if n := whole(dir); n > 0 && n < len(files) {
			partly++
		}
		must(t, seed(dir, files, os.Getuid(), os.Getgid()))
		if n := whole(dir); n != len(files) {
			t.Fatalf("%d files of %d after the second seed", n, len(files))
		}
	}
	if partly == 0 {
		t.Log("no kill fell into the middle of a seed on this machine")
	}
}

// pause lets the other process get on: how far does not matter.
func pause(d time.Duration) { <-time.NewTimer(d).C }

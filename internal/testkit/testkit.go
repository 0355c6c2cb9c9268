// Package testkit holds helpers that tests of several packages share: the static boxd, users that
// are not root, directories that such users can reach, and polling.
//
// Only tests and its package powercut import it. Invariant: it removes what it makes when the test
// ends, except the programs that it builds and the agent CLIs that it downloads.
package testkit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Eventually polls cond until it returns true, for at most 30 seconds. After that it fails the
// test with the text what.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-tick.C
	}
}

// Glob returns the paths below a directory that match a well-formed pattern, whatever is in the
// directory's own name.
func Glob(dir, pattern string) []string {
	names, err := fs.Glob(os.DirFS(dir), pattern)
	if err != nil {
		panic(err)
	}
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names
}

// BaseDir makes a directory of mode 0755 whose parents all allow other users to enter, which a
// test's own directory does not. Its name contains "[x]", so that code fails that uses the path as
// a glob pattern. It is removed with the test.
func BaseDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hf[x]")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}

var built struct {
	mu    sync.Mutex
	paths map[string]string
}

// Boxd returns the path of a static boxd built from this tree. It is built at most once for each
// process and never with the race detector, which needs cgo: a box must run what users get.
// $HOLDFAST_TEST_BOXD may name a boxd that was built before.
func Boxd(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("HOLDFAST_TEST_BOXD"); p != "" {
		return p
	}
	return Program(t, "./cmd/boxd")
}

// Program builds a static program for this machine from a package directory of the module, at
// most once for each process, and returns its path. Other users may execute it. The file stays in
// the temporary directory, so that a box that a killed test left behind still has its program. A later build
// with the same content replaces it.
func Program(t testing.TB, pkg string) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if p, ok := built.paths[pkg]; ok {
		return p
	}
	path, err := build(pkg)
	if err != nil {
		t.Fatal(err)
	}
	if built.paths == nil {
		built.paths = map[string]string{}
	}
	built.paths[pkg] = path
	return path
}

// Owner returns a fixed owner id for the drivers of a data directory.
func Owner(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:8])
}

// Root returns the directory of the module.
func Root() string { return root }

var root = findRoot()

// findRoot finds the module by the path of this source file. A build with -trimpath contains no
// such path; then it searches upwards from the directory of the package under test.
func findRoot() string {
	if _, file, _, _ := runtime.Caller(0); filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file)))
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return "."
}

func build(pkg string) (string, error) {
	dir := filepath.Join("/tmp", fmt.Sprintf("hf-programs-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, "build-*")
	if err != nil {
		return "", err
	}
	_ = tmp.Close()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", tmp.Name(), pkg)
	cmd.Dir = Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=-buildvcs=false")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		_ = os.Remove(tmp.Name())
		return "", fmt.Errorf("the program %s could not be built: %w\n%s", pkg, err, out.String())
	}
	// The name contains a hash of the content, because another test process may run a program of another tree.
	program, err := os.ReadFile(tmp.Name())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(program)
	path := filepath.Join(dir, fmt.Sprintf("%s-%x", filepath.Base(pkg), sum[:6]))
	// Set the mode before the rename, because another test process may start the program at any moment.
	if err := os.Chmod(tmp.Name(), 0o755); err != nil {
		return "", err
	}
	return path, os.Rename(tmp.Name(), path)
}

// NoSignalsHeld fails the test unless the SigBlk and SigIgn lines of a process's status exist and
// are empty. It ignores signals 32 and 33, which belong to the C library: programs that use it,
// such as make, pass them on ignored.
func NoSignalsHeld(t testing.TB, status string) {
	t.Helper()
	seen := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "SigBlk" && name != "SigIgn" {
			continue
		}
		seen++
		bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil || bits&^(1<<31|1<<32) != 0 {
			t.Errorf("a child holds signals: %s", strings.TrimSpace(line))
		}
	}
	if seen != 2 {
		t.Errorf("no signal masks in %q", status)
	}
}

package testkit

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed claude.json
var claudePin []byte

// Claude is a directory that holds the pinned Claude Code CLI as "claude". It is
// fetched from the npm registry, once per clone, and is what claude.json says to
// the bit or the test fails. $HOLDFAST_TEST_CLAUDE names one that was fetched
// before. Where it cannot be fetched the test is skipped, loudly; under CI that is
// a failure.
func Claude(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("HOLDFAST_TEST_CLAUDE"); dir != "" {
		return dir
	}
	dir, err := claude(filepath.Join(Root(), ".cache", "claude"))
	var missing *unfetched
	switch {
	case errors.As(err, &missing) && os.Getenv("CI") == "":
		t.Skipf("SKIPPED LOUDLY: the Claude Code CLI cannot be fetched: %v", err)
	case err != nil:
		t.Fatalf("the Claude Code CLI: %v", err)
	}
	return dir
}

// unfetched says that the registry was not there.
type unfetched struct{ err error }

func (u *unfetched) Error() string { return u.err.Error() }

func claude(cache string) (string, error) {
	var pin struct {
		Version  string
		Packages map[string]struct{ Name, Integrity string }
	}
	if err := json.Unmarshal(claudePin, &pin); err != nil {
		return "", err
	}
	pkg, ok := pin.Packages[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return "", &unfetched{fmt.Errorf("claude.json pins none for %s/%s", runtime.GOOS, runtime.GOARCH)}
	}
	// The hash is part of the name: a new pin is a new directory.
	sum := strings.NewReplacer("/", "_", "+", "-").Replace(strings.TrimPrefix(pkg.Integrity, "sha512-"))[:16]
	dir := filepath.Join(cache, pin.Version+"-"+sum)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "claude")); err == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	packed := filepath.Join(tmp, "package.tgz")
	url := fmt.Sprintf("%s/%s/-/%s-%s.tgz", registry(), pkg.Name, path.Base(pkg.Name), pin.Version)
	if err := download(url, packed); err != nil {
		return "", &unfetched{fmt.Errorf("%s: %w", url, err)}
	}
	unpacked := filepath.Join(tmp, "unpacked")
	if err := os.Mkdir(unpacked, 0o755); err != nil {
		return "", err
	}
	if err := unpackClaude(packed, pkg.Integrity, unpacked); err != nil {
		return "", err
	}
	return dir, os.Rename(unpacked, dir)
}

// registry is the npm registry that packages come from; npm itself is not needed.
func registry() string {
	if r := os.Getenv("npm_config_registry"); r != "" {
		return strings.TrimSuffix(r, "/")
	}
	return "https://registry.npmjs.org"
}

func download(url, to string) error {
	c := http.Client{Timeout: 10 * time.Minute}
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

// unpackClaude takes the program out of the package if the package is the pinned one.
func unpackClaude(packed, integrity, to string) error {
	f, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != integrity {
		return fmt.Errorf("the package's integrity is %s, claude.json pins %s", got, integrity)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		head, err := r.Next()
		if err != nil {
			return fmt.Errorf("no program in the package: %w", err)
		}
		if head.Name != "package/claude" {
			continue
		}
		out, err := os.OpenFile(filepath.Join(to, "claude"), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, r)
		return errors.Join(err, out.Chmod(0o755), out.Close())
	}
}

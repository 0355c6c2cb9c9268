// Package boxd carries the program that runs as the first process of a box, and puts it
// where a box can execute it.
//
// Drivers import it; it imports the vocabulary only. How a driver starts the program is
// told in package wire, at Config. Invariant: what Extract writes has exactly the bytes of
// the program, is named by their hash, and never changes once it is there.
package boxd

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

//go:embed dist
var dist embed.FS

const op = "boxd"

// maxBytes bounds what is unpacked; boxd has to stay far below it.
const maxBytes = 64 << 20

// Program is the static boxd for linux on an architecture, named as in GOARCH, and the
// SHA-256 of its bytes in hex. It is unavailable when the module was built without one for
// that architecture, with the command that makes it as the hint.
func Program(arch string) (program []byte, hash string, err error) {
	if program, err = read(dist, arch); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(program)
	return program, hex.EncodeToString(sum[:]), nil
}

// Local is the Program for this machine's architecture.
func Local() ([]byte, error) { return read(dist, runtime.GOARCH) }

func read(from fs.FS, arch string) ([]byte, error) {
	name := "dist/boxd_linux_" + arch + ".gz"
	packed, err := fs.ReadFile(from, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "this binary was built without boxd for linux/%s", arch).
			WithHint("run make boxd, then build holdfast again")
	}
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, op, "%w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, damaged(name, err)
	}
	program, err := io.ReadAll(io.LimitReader(z, maxBytes+1))
	if err != nil {
		return nil, damaged(name, err)
	}
	if len(program) > maxBytes || len(program) == 0 {
		return nil, damaged(name, errors.New("unlikely size"))
	}
	return program, nil
}

func damaged(name string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the embedded %s is damaged: %w", name, err).
		WithHint("run make boxd, then build holdfast again")
}

// Extract puts program into dir as boxd-<hash>, mode 0755, and returns its path.
// A file that is there already with the right content is used as it is, a wrong
// one is replaced. Safe for concurrent use, by several processes too.
func Extract(dir string, program []byte) (string, error) {
	sum := sha256.Sum256(program)
	path := filepath.Join(dir, "boxd-"+hex.EncodeToString(sum[:8]))
	if old, err := os.ReadFile(path); err == nil && sha256.Sum256(old) == sum {
		if st, err := os.Stat(path); err == nil && st.Mode().Perm() == 0o755 {
			return path, nil
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	if err := replace(path, program); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "extract %s: %w", holdfast.Quote(path), err)
	}
	return path, nil
}

// replace writes the program, executable, in the place of what is there.
func replace(path string, program []byte) error {
	// A process forked meanwhile would hold the file open for writing, and nobody
	// could execute it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return durable.Replace(path, func(f *os.File) error {
		if _, err := f.Write(program); err != nil {
			return err
		}
		return f.Chmod(0o755)
	})
}

// Package boxd carries the program that runs as the first process of a box, and puts it
// where a box can execute it.
//
// Drivers import it; it imports the vocabulary only. How a driver starts the program is
// told in package wire, at Config. Invariant: what Extract writes has exactly the bytes of
// the program, is named by their hash, and never changes once it is there.
package boxd

import (
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
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

//go:embed dist
var dist embed.FS

const op = "boxd"

// maxBytes bounds what is unpacked; boxd has to stay far below it.
const maxBytes = 64 << 20

// Program is a boxd for Linux. The zero value is none.
type Program struct {
	// Hash is the SHA-256 of its bytes, in hex.
	Hash string
	load func() ([]byte, error)
}

// For is the Program that this module was built with for an architecture, named as in GOARCH.
// Where there is none it is unavailable, with the command that makes it as the hint.
func For(arch string) (Program, error) { return embedded(dist, arch) }

// Local is the Program for this machine's architecture.
func Local() (Program, error) { return For(runtime.GOARCH) }

// File returns a function that reads a Program from a file, as a driver's configuration takes
// it instead of Local.
func File(path string) func() (Program, error) {
	return func() (Program, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return Program{}, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
		}
		return Of(b), nil
	}
}

// Of is a Program of these bytes.
func Of(program []byte) Program {
	sum := sha256.Sum256(program)
	return Program{Hash: hex.EncodeToString(sum[:]), load: func() ([]byte, error) { return program, nil }}
}

// Bytes are the program. They are unavailable when they are not what Hash says.
func (p Program) Bytes() ([]byte, error) {
	if p.load == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "there is no program")
	}
	return p.load()
}

// embedded finds a program and its hash without unpacking it: a start needs the hash alone
// once the program is in its place.
func embedded(from fs.FS, arch string) (Program, error) {
	name := "dist/boxd_linux_" + arch
	hash, err := fs.ReadFile(from, name+".sha256")
	if errors.Is(err, fs.ErrNotExist) {
		return Program{}, holdfast.Errorf(holdfast.KindUnavailable, op, "this binary was built without boxd for linux/%s", arch).
			WithHint("run make boxd, then build holdfast again")
	}
	if err != nil {
		return Program{}, holdfast.Errorf(holdfast.KindInternal, op, "%w", err)
	}
	p := Program{Hash: strings.TrimSpace(string(hash))}
	p.load = func() ([]byte, error) {
		program, err := unpack(from, name+".gz")
		if err != nil {
			return nil, damaged(name, err)
		}
		if Of(program).Hash != p.Hash {
			return nil, damaged(name, errors.New("it has another hash"))
		}
		return program, nil
	}
	return p, nil
}

func unpack(from fs.FS, name string) ([]byte, error) {
	packed, err := from.Open(name)
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	program, err := io.ReadAll(io.LimitReader(z, maxBytes+1))
	if err == nil && (len(program) > maxBytes || len(program) == 0) {
		err = errors.New("unlikely size")
	}
	return program, err
}

func damaged(name string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the embedded %s is damaged: %w", name, err).
		WithHint("run make boxd, then build holdfast again")
}

// Extract puts the program into dir as boxd-<hash>, mode 0755, and returns its path.
// A file that is there already with the right content is used as it is, a wrong
// one is replaced. Safe for concurrent use, by several processes too.
func (p Program) Extract(dir string) (string, error) {
	if len(p.Hash) < 16 {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "there is no program")
	}
	path := filepath.Join(dir, "boxd-"+p.Hash[:16])
	if st, err := os.Stat(path); err == nil && st.Mode().Perm() == 0o755 && hashOf(path) == p.Hash {
		return path, nil
	}
	program, err := p.Bytes()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	if err := replace(path, program); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "extract %s: %w", holdfast.Quote(path), err)
	}
	return path, nil
}

// hashOf is the hash of a file; empty for one that cannot be read.
func hashOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
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

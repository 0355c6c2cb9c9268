// Package boxd contains boxd, the program that runs as the first process of a box, and extracts it to a place where a
// box can execute it.
//
// Drivers, app and bench import it; it imports the vocabulary and package durable. Package wire describes, at Config,
// how a driver starts the program. Invariant: a file written by Extract has exactly the bytes of the program, is named
// by the beginning of their hash, and never changes.
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

// maxBytes is the greatest accepted size of the unpacked program, in bytes: many times the size of boxd.
const maxBytes = 64 << 20

// Program is a boxd program for Linux. The zero value holds no program.
type Program struct {
	// Hash is the SHA-256 of the program's bytes, in hexadecimal.
	Hash string
	load func() ([]byte, error)
}

// For returns the Program that is embedded in this binary for an architecture, named as in
// GOARCH. If none is embedded, the error is unavailable and its hint is the command that
// builds it.
func For(arch string) (Program, error) { return embedded(dist, arch) }

// Local returns the embedded Program for this machine's architecture.
func Local() (Program, error) { return For(runtime.GOARCH) }

// File returns a function that reads a Program from a file. A driver can be configured with it
// instead of Local.
func File(path string) func() (Program, error) {
	return func() (Program, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return Program{}, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot read the boxd program: %w", err)
		}
		return Of(b), nil
	}
}

// Of returns a Program that consists of the given bytes.
func Of(program []byte) Program {
	sum := sha256.Sum256(program)
	return Program{Hash: hex.EncodeToString(sum[:]), load: func() ([]byte, error) { return program, nil }}
}

// Bytes returns the program's bytes. It fails with invalid for the zero Program, and with unavailable if an embedded
// program is damaged.
func (p Program) Bytes() ([]byte, error) {
	if p.load == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the boxd Program is empty: get one with Local, For or File")
	}
	return p.load()
}

// embedded returns an embedded program without unpacking it. Once the program was extracted,
// only its hash is needed.
func embedded(from fs.FS, arch string) (Program, error) {
	name := "dist/boxd_linux_" + arch
	hash, err := fs.ReadFile(from, name+".sha256")
	if errors.Is(err, fs.ErrNotExist) {
		return Program{}, holdfast.Errorf(holdfast.KindUnavailable, op, "this holdfast program was built without boxd for linux/%s", arch).
			WithHint("run make boxd, then build holdfast again")
	}
	if err != nil {
		return Program{}, holdfast.Errorf(holdfast.KindInternal, op, "cannot read the hash of the embedded boxd program: %w", err)
	}
	p := Program{Hash: strings.TrimSpace(string(hash))}
	p.load = func() ([]byte, error) {
		program, err := unpack(from, name+".gz")
		if err != nil {
			return nil, damaged(name, err)
		}
		if Of(program).Hash != p.Hash {
			return nil, damaged(name, errors.New("the content of the embedded boxd program does not match its hash"))
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
		err = errors.New("the unpacked size of the boxd program is 0 or over 64 MiB")
	}
	return program, err
}

func damaged(name string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the boxd program %s, embedded in this program, is damaged: %w", name, err).
		WithHint("run make boxd, then build holdfast again")
}

// Extract puts the program into dir as boxd- and the first 16 digits of its hash, mode 0755, and returns the path. An
// existing file with the right content is used as it is; one with other content is replaced. Safe for concurrent use,
// also by several processes.
func (p Program) Extract(dir string) (string, error) {
	if len(p.Hash) < 16 {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "the boxd Program is empty: get one with Local, For or File")
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
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the directory for the boxd program: %w", err)
	}
	if err := replace(path, program); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "cannot extract boxd to %s: %w", holdfast.Quote(path), err)
	}
	return path, nil
}

// hashOf returns the SHA-256 of a file in hexadecimal; empty if the file cannot be read.
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

// replace writes the program to an executable file at path, replacing an existing file.
func replace(path string, program []byte) error {
	// Hold ForkLock, so that no process is forked while the file is open for writing: the child would
	// inherit the descriptor, and the kernel refuses to execute a file that a process has open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return durable.Replace(path, func(f *os.File) error {
		if _, err := f.Write(program); err != nil {
			return err
		}
		return f.Chmod(0o755)
	})
}

// Package seal encrypts data that must not be readable on disk, such as the
// environment of a session, and stores the server's own keys.
//
// The app opens the keys, the engine uses them through an interface of its own. It
// imports the standard library and the vocabulary. Invariant (I-22): sealed data opens
// only unchanged, with the same key and for the context for which it was sealed.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

const (
	// format is the first byte of every value that a Sealer sealed.
	format = 1
	// domain is the prefix of a Sealer's associated data, so that other uses of a key cannot clash.
	domain  = "holdfast seal 1\x00"
	keySize = 32
)

// Sealer encrypts and decrypts values with one key: AES-256-GCM, with a random nonce for each
// value. Safe for concurrent use.
type Sealer struct {
	aead cipher.AEAD
	rand io.Reader
}

// Open returns a Sealer with the key in the file at path. A missing file is created with mode 0600;
// if two servers create it at once, both use the same one. The error is denied for a file that
// others can read, internal for one without a valid key. If random is nil no file is created: a
// missing one is not_found, and the Sealer can only open values.
func Open(path string, random io.Reader) (*Sealer, error) {
	const op = "secret.key"
	key, err := KeyFile(path, random)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, op, "%w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, op, "%w", err)
	}
	return &Sealer{aead: aead, rand: random}, nil
}

// KeyFile returns the 32 secret bytes in a file of hexadecimal digits. It creates a missing file as
// Open does, and returns the same errors.
func KeyFile(path string, random io.Reader) ([]byte, error) { return readOrMake(path, random, read) }

// readOrMake reads a key file with read. A missing file is created first, or is not_found if random
// is nil.
func readOrMake[T any](path string, random io.Reader, read func(path string) (T, error)) (T, error) {
	keys, err := read(path)
	if errors.Is(err, fs.ErrNotExist) && random == nil {
		err = holdfast.Errorf(holdfast.KindNotFound, filepath.Base(path), "the key file %s is missing", holdfast.Quote(path)).
			WithHint("put it back from a backup")
	} else if errors.Is(err, fs.ErrNotExist) {
		if err = create(path, random); err == nil {
			keys, err = read(path)
		}
	}
	var known *holdfast.Error
	if err != nil && !errors.As(err, &known) {
		err = holdfast.Errorf(holdfast.KindUnavailable, filepath.Base(path), "%w", err)
	}
	return keys, err
}

// Seal encrypts plain for a context, such as "session <id>", which Open needs again. The result is
// 29 bytes longer than plain.
func (s *Sealer) Seal(context string, plain []byte) ([]byte, error) {
	n := s.aead.NonceSize()
	out := make([]byte, 1+n, 1+n+len(plain)+s.aead.Overhead())
	out[0] = format
	if _, err := io.ReadFull(s.rand, out[1:]); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "seal", "cannot read random bytes for encryption: %w", err)
	}
	return s.aead.Seal(out, out[1:1+n], plain, associated(context)), nil
}

// Open decrypts a value that Seal made for the same context. The error is internal for a value that
// was changed, cut, or sealed with another key or for another context.
func (s *Sealer) Open(context string, sealed []byte) ([]byte, error) {
	n := s.aead.NonceSize()
	if len(sealed) < 1+n+s.aead.Overhead() || sealed[0] != format {
		return nil, damaged(context)
	}
	plain, err := s.aead.Open(nil, sealed[1:1+n], sealed[1+n:], associated(context))
	if err != nil {
		return nil, damaged(context)
	}
	return plain, nil
}

func damaged(context string) error {
	return holdfast.Errorf(holdfast.KindInternal, "seal", "the secret of %s cannot be opened: it is damaged or was sealed with another key", holdfast.Quote(context)).
		WithHint("put back the secret.key that belongs to this data directory")
}

func associated(context string) []byte { return append([]byte(domain), context...) }

// readPrivate reads a key file; denied unless it is a regular file that only its owner can read.
func readPrivate(path string) ([]byte, error) {
	op := filepath.Base(path)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, holdfast.Errorf(holdfast.KindDenied, op, "the key file %s is not a regular file", holdfast.Quote(path))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, holdfast.Errorf(holdfast.KindDenied, op, "the key file %s can be read by others (mode %04o)", holdfast.Quote(path), info.Mode().Perm()).
			WithHint("chmod 600 %s", path)
	}
	return os.ReadFile(path)
}

func read(path string) ([]byte, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	key := make([]byte, keySize)
	text = bytes.TrimSpace(text)
	if len(text) != 2*keySize {
		return nil, notKey(path)
	}
	if _, err := hex.Decode(key, text); err != nil {
		return nil, notKey(path)
	}
	return key, nil
}

func notKey(path string) error {
	return holdfast.Errorf(holdfast.KindInternal, filepath.Base(path), "the file %s does not hold a key", holdfast.Quote(path)).
		WithHint("put the file back from a backup; without one remove it, and what was sealed or signed with it is lost")
}

// create creates a key file with a new random key in one step: the file is complete and on disk before
// it gets its name. An existing file stays, without an error.
func create(path string, random io.Reader) error {
	key := make([]byte, keySize)
	if _, err := io.ReadFull(random, key); err != nil {
		return err
	}
	err := durable.Create(path, durable.Bytes([]byte(hex.EncodeToString(key)+"\n")))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

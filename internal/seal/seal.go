// Package seal encrypts what must not be readable at rest, such as the
// environment of a session, and keeps the server's own keys.
//
// The app opens the key, the engine uses it through an interface of its own. It
// imports the standard library and the vocabulary. Invariant (I-22): what was sealed
// for one context opens for that context and key only, unchanged, or not at all.
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
	// format is the first byte of everything sealed.
	format = 1
	// domain keeps our associated data apart from that of any other use of a key.
	domain  = "holdfast seal 1\x00"
	keySize = 32
)

// Sealer seals and opens with one key: AES-256-GCM, a random nonce for each
// message. Safe for concurrent use.
type Sealer struct {
	aead cipher.AEAD
	rand io.Reader
}

// Open reads the key file, which it makes with mode 0600 when there is none; of
// two that make it at once one wins and both use it. A key file that others can
// read is denied, one that is no key is internal. With random nil none is made: a
// missing one is not_found, and the Sealer can only open.
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

// KeyFile reads a file of 32 secret bytes in hexadecimal, and makes it as Open does.
// Errors are those of Open.
func KeyFile(path string, random io.Reader) ([]byte, error) { return readOrMake(path, random, read) }

// readOrMake reads a key file, made before if there is none.
func readOrMake[T any](path string, random io.Reader, read func(path string) (T, error)) (T, error) {
	keys, err := read(path)
	if errors.Is(err, fs.ErrNotExist) && random == nil {
		err = holdfast.Errorf(holdfast.KindNotFound, filepath.Base(path), "%s is missing", holdfast.Quote(path)).
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

// Seal encrypts plain for a context, such as "session <id>": it must be given to
// Open again. The result is longer by 29 bytes.
func (s *Sealer) Seal(context string, plain []byte) ([]byte, error) {
	n := s.aead.NonceSize()
	out := make([]byte, 1+n, 1+n+len(plain)+s.aead.Overhead())
	out[0] = format
	if _, err := io.ReadFull(s.rand, out[1:]); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "seal", "no randomness: %w", err)
	}
	return s.aead.Seal(out, out[1:1+n], plain, associated(context)), nil
}

// Open decrypts what Seal made for the same context. Anything else, changed,
// cut, of another key or context, is internal: what the server wrote is damaged.
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
		WithHint("put the secret.key back that belongs to this data directory")
}

func associated(context string) []byte { return append([]byte(domain), context...) }

// readPrivate reads a file that its owner alone can read.
func readPrivate(path string) ([]byte, error) {
	op := filepath.Base(path)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, holdfast.Errorf(holdfast.KindDenied, op, "%s is not a regular file", holdfast.Quote(path))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, holdfast.Errorf(holdfast.KindDenied, op, "%s can be read by others (mode %04o)", holdfast.Quote(path), info.Mode().Perm()).
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
	return holdfast.Errorf(holdfast.KindInternal, filepath.Base(path), "%s does not hold a key", holdfast.Quote(path)).
		WithHint("put the file back from a backup; without one remove it, and what was sealed or signed with it is lost")
}

// create makes the key file in one step: complete and on disk before it has its
// name, and never in the place of another.
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

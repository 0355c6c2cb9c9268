// Package seal encrypts data that must not be readable on disk, in envelopes of a Keyring, and
// stores the server's own keys.
//
// Packages app and auditlog open keys; the credential store seals with them through an interface of its own. It
// imports durable and the vocabulary. Invariant (I-22): sealed data can be decrypted only if it is unchanged,
// with the same key and for the context for which it was sealed.
package seal

import (
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

const keySize = 32

// KeyFile returns the key in a file of 64 hexadecimal digits. A missing file is created with mode
// 0600; if two servers create it at once, both use the same one. The error is denied for a file that
// others can read, internal for one without a valid key. If random is nil no file is created: a
// missing one is not_found.
func KeyFile(path string, random io.Reader) ([]byte, error) {
	keys, err := readOrMake(path, random)
	switch {
	case err != nil:
		return nil, err
	case len(keys) != 1:
		return nil, notKey(path)
	}
	return keys[0], nil
}

// readOrMake reads a file of keys. A missing file is created first, with one key, or is not_found if random
// is nil.
func readOrMake(path string, random io.Reader) ([][]byte, error) {
	keys, err := readKeys(path)
	if errors.Is(err, fs.ErrNotExist) && random == nil {
		err = holdfast.Errorf(holdfast.KindNotFound, filepath.Base(path), "the key file %s is missing", holdfast.Quote(path)).
			WithHint("put the key file back from a backup")
	} else if errors.Is(err, fs.ErrNotExist) {
		if err = create(path, random); err == nil {
			keys, err = readKeys(path)
		}
	}
	var known *holdfast.Error
	if err != nil && !errors.As(err, &known) {
		err = holdfast.Errorf(holdfast.KindUnavailable, filepath.Base(path), "the key file %s cannot be read or created: %w", holdfast.Quote(path), err)
	}
	return keys, err
}

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

func notKey(path string) error {
	return holdfast.Errorf(holdfast.KindInternal, filepath.Base(path), "the file %s does not hold a key", holdfast.Quote(path)).
		WithHint("put the key file back from a backup; without a backup remove the file, and what was sealed or signed with its key is lost")
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

package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

const (
	// envelope is the first byte of what a Keyring seals.
	envelope = 2
	idSize   = 8
	// The associated data of a wrapped data key, and of a value under it.
	wrapDomain  = "holdfast envelope key 1\x00"
	valueDomain = "holdfast envelope value 1\x00"
)

// Keyring seals values in envelopes: each has a data key of its own, which a root key
// wraps that the envelope names. So another root key costs wrapping the data keys
// anew, and nothing is decrypted for it. Safe for concurrent use.
type Keyring struct {
	rand io.Reader
	// path is the file of the root keys; empty when they are given.
	path string

	mu sync.Mutex
	// roots are the keys, the one in use first.
	roots []root
}

type root struct {
	id  [idSize]byte
	key []byte
}

// OpenKeyring takes the root keys that are given in hexadecimal, the one in use first;
// without any those of the file, which it makes as Open does.
func OpenKeyring(path string, given []string, random io.Reader) (*Keyring, error) {
	k := &Keyring{rand: random}
	for _, text := range given {
		key, err := hex.DecodeString(strings.TrimSpace(text))
		if err != nil || len(key) != keySize {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "secret key", "a root key is not %d bytes in hexadecimal", keySize).
				WithHint("openssl rand -hex 32 makes one")
		}
		k.roots = append(k.roots, newRoot(key))
	}
	if len(k.roots) > 0 {
		return k, nil
	}
	k.path = path
	keys, err := readOrMake(path, random, readKeys)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		k.roots = append(k.roots, newRoot(key))
	}
	return k, nil
}

func newRoot(key []byte) root {
	r := root{key: key}
	sum := sha256.Sum256(append([]byte("holdfast root key id\x00"), key...))
	copy(r.id[:], sum[:])
	return r
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// KeyID names the root key in use.
func (k *Keyring) KeyID() string {
	r := k.current()
	return hex.EncodeToString(r.id[:])
}

func (k *Keyring) current() root {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.roots[0]
}

func (k *Keyring) find(id []byte) (root, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.roots {
		if bytes.Equal(r.id[:], id) {
			return r, true
		}
	}
	return root{}, false
}

// Seal encrypts plain for a context, which has to be given to Open again.
func (k *Keyring) Seal(context string, plain []byte) ([]byte, error) {
	data := make([]byte, keySize)
	if _, err := io.ReadFull(k.rand, data); err != nil {
		return nil, noRandom(err)
	}
	out, err := k.wrap(k.current(), context, data)
	if err != nil {
		return nil, err
	}
	return k.box(out, data, valueDomain+context, plain)
}

// wrap is the head of an envelope: format, root key, data key.
func (k *Keyring) wrap(r root, context string, data []byte) ([]byte, error) {
	out := append([]byte{envelope}, r.id[:]...)
	return k.box(out, r.key, wrapDomain+string(r.id[:])+context, data)
}

// box appends a nonce and what is sealed under a key.
func (k *Keyring) box(to, key []byte, associated string, plain []byte) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "seal", "%w", err)
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := io.ReadFull(k.rand, nonce); err != nil {
		return nil, noRandom(err)
	}
	return aead.Seal(append(to, nonce...), nonce, plain, []byte(associated)), nil
}

func noRandom(err error) error {
	return holdfast.Errorf(holdfast.KindInternal, "seal", "no randomness: %w", err)
}

const (
	nonceSize = 12
	tagSize   = 16
	headSize  = 1 + idSize + nonceSize + keySize + tagSize
)

// unwrap opens the head of an envelope.
func (k *Keyring) unwrap(context string, sealed []byte) (data []byte, err error) {
	if len(sealed) < headSize+nonceSize+tagSize || sealed[0] != envelope {
		return nil, lost(context)
	}
	id := sealed[1 : 1+idSize]
	r, ok := k.find(id)
	if !ok {
		return nil, holdfast.Errorf(holdfast.KindInternal, "seal", "%s is sealed under the root key %x, which is not there", context, id).
			WithHint("give the server that key, too: see docs/egress.md")
	}
	data, err = unbox(r.key, wrapDomain+string(id)+context, sealed[1+idSize:headSize])
	if err != nil {
		return nil, lost(context)
	}
	return data, nil
}

func unbox(key []byte, associated string, boxed []byte) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, boxed[:nonceSize], boxed[nonceSize:], []byte(associated))
}

// Open decrypts what Seal made for the same context; anything else is internal.
func (k *Keyring) Open(context string, sealed []byte) ([]byte, error) {
	data, err := k.unwrap(context, sealed)
	if err != nil {
		return nil, err
	}
	plain, err := unbox(data, valueDomain+context, sealed[headSize:])
	if err != nil {
		return nil, lost(context)
	}
	return plain, nil
}

func lost(context string) error {
	return holdfast.Errorf(holdfast.KindInternal, "seal", "%s cannot be opened: it is damaged", context).
		WithHint("set it anew: holdfast secret set NAME")
}

// Rewrap is an envelope under the root key in use; what is in it is not touched.
func (k *Keyring) Rewrap(context string, sealed []byte) ([]byte, error) {
	data, err := k.unwrap(context, sealed)
	if err != nil {
		return nil, err
	}
	out, err := k.wrap(k.current(), context, data)
	if err != nil {
		return nil, err
	}
	return append(out, sealed[headSize:]...), nil
}

// Renew makes a new root key the one in use; the others stay until Retire. Keys that
// were given are the giver's to renew: then nothing changes.
func (k *Keyring) Renew() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" {
		return nil
	}
	key := make([]byte, keySize)
	if _, err := io.ReadFull(k.rand, key); err != nil {
		return noRandom(err)
	}
	roots := append([]root{newRoot(key)}, k.roots...)
	if err := writeKeys(k.path, roots); err != nil {
		return err
	}
	k.roots = roots
	return nil
}

// Retire forgets all root keys but the one in use: nothing is sealed under them any
// more.
func (k *Keyring) Retire() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" || len(k.roots) == 1 {
		return nil
	}
	if err := writeKeys(k.path, k.roots[:1]); err != nil {
		return err
	}
	k.roots = k.roots[:1:1]
	return nil
}

// maxKeys bounds the file of root keys.
const maxKeys = 64

// readKeys reads a file of keys in hexadecimal, one a line.
func readKeys(path string) ([][]byte, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(string(text))
	if len(lines) == 0 || len(lines) > maxKeys {
		return nil, notKey(path)
	}
	var out [][]byte
	for _, line := range lines {
		key, err := hex.DecodeString(line)
		if err != nil || len(key) != keySize {
			return nil, notKey(path)
		}
		out = append(out, key)
	}
	return out, nil
}

// writeKeys replaces the file in one step.
func writeKeys(path string, roots []root) error {
	var text strings.Builder
	for _, r := range roots {
		text.WriteString(hex.EncodeToString(r.key) + "\n")
	}
	if err := durable.Replace(path, durable.Bytes([]byte(text.String()))); err != nil {
		return unwritten(path, err)
	}
	return nil
}

func unwritten(path string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, filepath.Base(path), "the root keys cannot be written: %w", err)
}

package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

const (
	// envelope is the first byte of every value that a Keyring sealed.
	envelope = 2
	idSize   = 8
	// Prefixes of the associated data of a wrapped data key and of a sealed value.
	wrapDomain  = "holdfast envelope key 1\x00"
	valueDomain = "holdfast envelope value 1\x00"
)

// Keyring seals values in envelopes. Each value is encrypted with a data key of its own, which is
// stored in the envelope, encrypted (wrapped) with a root key that the envelope names. To change
// the root key only the data keys are wrapped again; no value is decrypted. Safe for
// concurrent use.
type Keyring struct {
	rand io.Reader
	// path is the file of the root keys; empty if the keys were given to OpenKeyring.
	path string

	mu sync.Mutex
	// roots are the root keys; the first is the current one, with which new values are sealed.
	roots []root
	// retired are root keys that this process removed. They still open values that it read before.
	retired []root
}

type root struct {
	id  [idSize]byte
	key []byte
}

// OpenKeyring returns a keyring with the given root keys in hexadecimal, the current one first. If
// given is empty it reads them from the file at path, which it creates as KeyFile does.
func OpenKeyring(path string, given []string, random io.Reader) (*Keyring, error) {
	k := &Keyring{rand: random}
	for _, text := range given {
		key, err := hex.DecodeString(strings.TrimSpace(text))
		if err != nil || len(key) != keySize {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "secret key", "a root key is not %d bytes in hexadecimal", keySize).
				WithHint("openssl rand -hex 32 makes a root key")
		}
		k.roots = append(k.roots, newRoot(key))
	}
	if len(k.roots) > 0 {
		return k, nil
	}
	k.path = path
	keys, err := readOrMake(path, random)
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

// KeyID returns the id of the current root key.
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
	for _, r := range slices.Concat(k.roots, k.retired) {
		if bytes.Equal(r.id[:], id) {
			return r, true
		}
	}
	return root{}, false
}

// Seal encrypts plain for a context. Open needs the same context to decrypt it.
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

// wrap returns the head of an envelope: the format byte, the id of the root key r, and the data key
// encrypted with r.
func (k *Keyring) wrap(r root, context string, data []byte) ([]byte, error) {
	out := append([]byte{envelope}, r.id[:]...)
	return k.box(out, r.key, wrapDomain+string(r.id[:])+context, data)
}

// box encrypts plain with a key and appends the nonce and the ciphertext to to.
func (k *Keyring) box(to, key []byte, associated string, plain []byte) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "seal", "the value cannot be encrypted: %w", err)
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := io.ReadFull(k.rand, nonce); err != nil {
		return nil, noRandom(err)
	}
	return aead.Seal(append(to, nonce...), nonce, plain, []byte(associated)), nil
}

func noRandom(err error) error {
	return holdfast.Errorf(holdfast.KindInternal, "seal", "cannot read random bytes for encryption: %w", err)
}

const (
	nonceSize = 12
	tagSize   = 16
	headSize  = 1 + idSize + nonceSize + keySize + tagSize
)

// unwrap returns the data key of an envelope, decrypted with the root key that the envelope names.
func (k *Keyring) unwrap(context string, sealed []byte) (data []byte, err error) {
	if len(sealed) < headSize+nonceSize+tagSize || sealed[0] != envelope {
		return nil, lost(context)
	}
	id := sealed[1 : 1+idSize]
	r, ok := k.find(id)
	if !ok {
		return nil, holdfast.Errorf(holdfast.KindInternal, "seal", "%s is sealed with the root key %x, which the server does not have", context, id).
			WithHint("put that root key back, or give it to the server besides the current one: see docs/egress.md")
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

// Open decrypts a value that Seal made for the same context. For anything else the error is internal.
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
	return holdfast.Errorf(holdfast.KindInternal, "seal", "%s cannot be decrypted: its sealed data is damaged", context)
}

// Rewrap returns the envelope with its data key wrapped with the current root key. The encrypted
// value in it stays the same.
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

// Renew makes a new root key the current one; the others stay until Retire. If the keys were given
// to OpenKeyring it does nothing, because their owner has to renew them. It also does nothing if
// interrupted rotations left as many keys as the file can have: then the next rotation only finishes them.
func (k *Keyring) Renew() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" || len(k.roots) == maxKeys {
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

// Retire removes all root keys except the current one from the file. The caller must have rewrapped
// everything stored that was sealed with the others; values that were read before still open in this
// process. Keys that were given to OpenKeyring stay.
func (k *Keyring) Retire() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" || len(k.roots) == 1 {
		return nil
	}
	if err := writeKeys(k.path, k.roots[:1]); err != nil {
		return err
	}
	k.retired = append(k.retired, k.roots[1:]...)
	k.roots = k.roots[:1:1]
	return nil
}

// maxKeys is the most keys in the file of root keys.
const maxKeys = 64

// readKeys reads a file of keys in hexadecimal, one on each line.
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

// writeKeys replaces the file of root keys in one step.
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
	return holdfast.Errorf(holdfast.KindUnavailable, filepath.Base(path), "the file of the root keys %s cannot be written: %w", holdfast.Quote(path), err)
}
